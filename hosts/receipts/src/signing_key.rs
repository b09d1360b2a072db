//! [`SigningKey`]: a key of minisign (Ed25519) in a file, which signs receipts.

use anyhow::{Context, bail, ensure};
use fl_core::Result;
use fl_core::regular_file::read_regular;
use minisign::{KeyPair, PublicKey, SecretKeyBox};
use std::path::{Path, PathBuf};

/// The most bytes of a file of a public key.
const MOST_PUBLIC: u64 = 4096;

/// Returns the public key, in base64, that is `given` or in a file of that name. An error never
/// quotes what is given nor what is in the file: it may be a secret key.
///
/// # Errors
/// If neither is a public key of minisign.
pub fn public_key(given: &str) -> Result<String> {
    let parse = |key: &str| PublicKey::from_base64(key.trim()).ok();
    if let Some(key) = parse(given) {
        return Ok(key.to_base64());
    }
    let path = Path::new(given);
    if !path.exists() {
        bail!(
            "--key: this is no public key, which has 56 characters and begins with RW, and there is no such file"
        );
    }
    let here = path.display();
    let text = read_regular(path, MOST_PUBLIC).with_context(|| format!("--key {here}"))?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    if let Some(key) = last.and_then(parse) {
        return Ok(key.to_base64());
    }
    let secret = SecretKeyBox::from(text.to_string()).into_unencrypted_secret_key();
    if secret.is_ok() || text.contains("secret key") {
        bail!("--key {here}: this is a secret key; give the public one, which is in {here}.pub");
    }
    bail!("--key {here}: this file has no public key of minisign; `fl verify --new-key` makes one")
}

/// A secret key without a password, and its public key.
pub struct SigningKey(KeyPair);

impl SigningKey {
    /// Reads a secret key.
    ///
    /// # Errors
    /// If it is no key of minisign without a password, or others can have read or written the file.
    pub fn read(path: &Path) -> Result<Self> {
        let here = path.display();
        let text = fl_files::read_own(path).with_context(|| format!("reading the key {here}"))?;
        fl_files::private(
            path,
            "sign with another key, which `fl verify --new-key FILE` makes",
        )?;
        let no = || {
            format!(
                "{here} is no secret key of minisign without a password; make one with `fl verify --new-key FILE` or `minisign -G -W`"
            )
        };
        let text = String::from_utf8(text).ok().with_context(no)?;
        let key = SecretKeyBox::from_string(&text).ok().with_context(no)?;
        let sk = key.into_unencrypted_secret_key().ok().with_context(no)?;
        let pk = PublicKey::from_secret_key(&sk).ok().with_context(no)?;
        Ok(Self(KeyPair { pk, sk }))
    }

    /// Makes a key: the secret one at `path`, the public one beside it with the ending `.pub`.
    ///
    /// # Errors
    /// If a file is there already, or cannot be written.
    pub fn make(path: &Path) -> Result<Self> {
        let public = PathBuf::from(format!("{}.pub", path.display()));
        for path in [path, &public] {
            ensure!(
                !path.exists(),
                "{} is there already; name another file for the key",
                path.display()
            );
        }
        let keys = KeyPair::generate_unencrypted_keypair().context("making a key")?;
        let secret = keys.sk.to_box(Some("signs receipts of runs of fl"))?;
        fl_files::write_secret(path, secret.into_string().as_bytes())?;
        fl_files::write(&public, keys.pk.to_box()?.into_string().as_bytes())?;
        Ok(Self(keys))
    }

    /// Returns the public key in base64.
    pub fn public(&self) -> String {
        self.0.pk.to_base64()
    }

    /// Signs a text.
    ///
    /// # Errors
    /// If it cannot.
    pub fn sign(&self, text: &[u8]) -> Result<String> {
        let (pk, sk) = (Some(&self.0.pk), &self.0.sk);
        let signed = minisign::sign(pk, sk, text, Some("receipt of a run of fl"), None);
        Ok(signed.context("signing a receipt")?.into_string())
    }
}
