//! Mutations without a fuzzer: small, seeded, always the same.

use fl_core::Stream;

/// `data` with a few bytes changed, removed, doubled or put elsewhere; which ones, `seed` says.
pub fn mutated(data: &[u8], seed: u64) -> Vec<u8> {
    const EDGES: [u8; 12] = [
        0, 1, 0x7f, 0x80, 0xff, b'-', b'.', b'0', b'9', b'"', b'{', b'\n',
    ];
    let mut draws = Stream::root(seed).draws();
    let mut out = data.to_vec();
    for _ in 0..=draws.below(4) {
        let n = out.len();
        let at = draws.below(n.max(1));
        let (from, length) = (draws.below(n.max(1)), draws.below(16).min(n));
        let piece = out[from..(from + length).min(n)].to_vec();
        let edge = EDGES[draws.below(EDGES.len())];
        match draws.below(6) {
            0 if n > 0 => out[at] = edge,
            1 if n > 0 => out[at] ^= 1 << draws.below(8),
            2 => out.insert(at.min(n), edge),
            3 => drop(out.drain(from..(from + length).min(n))),
            4 => drop(out.splice(at..at, piece)),
            5 => out.truncate(at),
            _ => out.push(edge),
        }
    }
    out
}
