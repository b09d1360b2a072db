//! `fl attack slopes`: what the slopes with which clients answer give away of their examples.

use super::{AttackArgs, attack};
use crate::Done;
use fl_attack::{ClientResult, SlopesOptions, attack_slopes};
use fl_registry::Catalogue;

pub fn slopes(args: &AttackArgs<SlopesOptions>, catalogue: &Catalogue, line: &[String]) -> Done {
    let options = &args.options;
    attack(&args.common, catalogue, line, |run| {
        let found = attack_slopes(options, run)?;
        let json = serde_json::json!({
            "spec": options.spec, "seed": args.common.seed, "attacks": found,
        });
        Ok((json, text(&found)))
    })
}

fn text(found: &[ClientResult]) -> String {
    let mut out = String::from("attack  client    loss  PSNR, dB   SSIM  without: PSNR   SSIM\n");
    for ClientResult {
        attack,
        client,
        loss,
        like,
        known,
    } in found
    {
        let loss = loss.map_or("-".into(), |loss| format!("{loss:.4}"));
        out += &format!(
            "{attack:6}  {client:>6}  {loss:>6}  {:8.1}  {:>5}  {:13.1}  {:>5}\n",
            like.mean_psnr(),
            like.mean_ssim(),
            known.mean_psnr(),
            known.mean_ssim()
        );
    }
    out + "follow: an honest server's generated inputs, moved along a client's slopes; without the slopes: not moved
ask: a malicious server asks about inputs of its own, and keeps the one of each class that the teacher is surest of; without the slopes: the class mean
each is compared with the client's nearest example (for `ask`, of the class); the loss is the mean over clients"
}
