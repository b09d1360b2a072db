//! What a file says of itself before anything of it is loaded: is it a whole shared library for
//! this machine?
//!
//! The system's loader maps what a header promises, and a library that was cut short ends the
//! process with a bus error when the missing part is touched. So the header is read first.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The machines that people have, by the number that ELF gives them.
const MACHINES: [(u16, &str); 7] = [
    (3, "x86"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (21, "powerpc64"),
    (22, "s390x"),
    (243, "riscv64"),
];

fn machine(number: u16) -> String {
    match MACHINES.iter().find(|(n, _)| *n == number) {
        Some((_, name)) => (*name).into(),
        None => format!("machine {number}"),
    }
}

/// Why this cannot be a library for this machine; `None` if it can. Only 64-bit little-endian
/// systems are looked at closely; on others the system's loader decides.
pub(crate) fn obstacle(file: &mut File) -> io::Result<Option<String>> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Some("it is empty".into()));
    }
    let mut head = [0; 64];
    file.seek(SeekFrom::Start(0))?;
    let n = read_up_to(file, &mut head)?;
    if n < 4 || head[..4] != *b"\x7fELF" {
        let start = String::from_utf8_lossy(&head[..n.min(16)]).into_owned();
        return Ok(Some(format!(
            "it is not a shared library: it begins with {start:?}"
        )));
    }
    let cut = |wanted: u64| {
        Ok(Some(format!(
            "it is cut short: it has {length} bytes, and its header needs {wanted}"
        )))
    };
    if n < head.len() {
        return cut(64);
    }
    if !cfg!(all(target_pointer_width = "64", target_endian = "little")) {
        return Ok(None);
    }
    if head[4] != 2 || head[5] != 1 {
        let bits = if head[4] == 2 { 64 } else { 32 };
        let end = if head[5] == 1 { "little" } else { "big" };
        return Ok(Some(format!(
            "it is for another machine: {bits} bits, {end}-endian"
        )));
    }
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let u64_at = |bytes: &[u8], at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(eight)
    };
    let (kind, made_for) = (u16_at(16), machine(u16_at(18)));
    if made_for != std::env::consts::ARCH {
        return Ok(Some(format!(
            "it is for another machine: {made_for}, and this is {}",
            std::env::consts::ARCH
        )));
    }
    if kind != 3 {
        return Ok(Some(
            "it is not a shared library but a program or an object file".into(),
        ));
    }
    // the section table stands at the end of nearly every library
    let sections = u64_at(&head, 40);
    let sections_end =
        sections.saturating_add(u64::from(u16_at(58)).saturating_mul(u64::from(u16_at(60))));
    if sections_end > length {
        return cut(sections_end);
    }
    let (first, size, count) = (u64_at(&head, 32), u16_at(54), u16_at(56));
    for i in 0..u64::from(count) {
        let mut entry = [0; 56];
        let at = first.saturating_add(i * u64::from(size));
        file.seek(SeekFrom::Start(at))?;
        if read_up_to(file, &mut entry)? < entry.len() {
            return cut(at.saturating_add(56));
        }
        let loads = entry[..4] == 1u32.to_le_bytes();
        let end = u64_at(&entry, 8).saturating_add(u64_at(&entry, 32));
        if loads && end > length {
            return cut(end);
        }
    }
    Ok(None)
}

fn read_up_to(file: &mut File, out: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < out.len() {
        match file.read(&mut out[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}
