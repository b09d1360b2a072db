//! Packets on a stream of bytes, such as a socket between two processes. A body equal to the
//! previous one is not sent again.

use crate::node::Node;
use crate::wire::{MAX_HEAD, Packet};
use anyhow::{Context, bail, ensure};
use fl_core::Result;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::sync::{Arc, mpsc};

/// The most bytes of a message.
pub const MAX_BODY: u64 = 8 << 30;

/// Length of the head, whether a body follows, its length, and a checksum of these.
const FRONT: usize = 4 + 1 + 8 + 4;

/// The sending side of a stream.
pub struct Sender<W> {
    to: W,
    last: Arc<[u8]>,
}

impl<W: Write> Sender<W> {
    /// Wraps an unused stream.
    pub fn new(to: W) -> Self {
        let last = Arc::new([]);
        Self { to, last }
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// If the stream fails, or the packet is too large.
    pub fn send(&mut self, packet: &Packet) -> Result<()> {
        let Packet { head, body } = packet;
        let (length, bytes) = (u32::try_from(head.len())?, body.len() as u64);
        ensure!(
            bytes <= MAX_BODY,
            "a message of {bytes} bytes, and it may have {MAX_BODY}"
        );
        let again = Arc::ptr_eq(body, &self.last) && !body.is_empty();
        let mut front = Vec::with_capacity(FRONT + head.len());
        front.extend(length.to_le_bytes());
        front.push(u8::from(!again));
        front.extend(bytes.to_le_bytes());
        front.extend(crc32fast::hash(&front).to_le_bytes());
        front.extend(head);
        self.to.write_all(&front)?;
        if !again {
            self.to.write_all(body)?;
            self.last = body.clone();
        }
        self.to.flush()?;
        Ok(())
    }
}

/// The receiving side of a stream.
pub struct Receiver<R> {
    from: BufReader<R>,
    last: Arc<[u8]>,
}

impl<R: Read> Receiver<R> {
    /// Wraps an unused stream.
    pub fn new(from: R) -> Self {
        let (from, last) = (BufReader::new(from), Arc::new([]));
        Self { from, last }
    }

    /// Returns the next packet; `None` if the other side has closed the stream.
    ///
    /// # Errors
    /// If the stream is truncated, or the data are no packet or too large. Memory grows with the
    /// received bytes, not with the announced length.
    pub fn receive(&mut self) -> Result<Option<Packet>> {
        let mut front = [0; FRONT];
        let mut got = 0;
        while got < FRONT {
            match self.from.read(&mut front[got..]) {
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => bail!("a packet was cut short"),
                Ok(n) => got += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (lengths, sum) = front.split_at(FRONT - 4);
        ensure!(
            crc32fast::hash(lengths).to_le_bytes() == *sum,
            "a packet's lengths were damaged on their way"
        );
        let head = u64::from(u32::from_le_bytes([front[0], front[1], front[2], front[3]]));
        let mut body = [0; 8];
        body.copy_from_slice(&lengths[5..]);
        let body = u64::from_le_bytes(body);
        ensure!(
            head <= MAX_HEAD as u64 && body <= MAX_BODY,
            "a packet with a head of {head} bytes and a message of {body}, and they may have {MAX_HEAD} and {MAX_BODY}"
        );
        let head = self.take(head)?;
        match front[4] {
            1 => self.last = self.take(body)?.into(),
            0 if self.last.len() as u64 == body => {}
            _ => bail!("a packet repeats the message of the one before, but with another length"),
        }
        let body = self.last.clone();
        Ok(Some(Packet { head, body }))
    }

    fn take(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.from.by_ref().take(length).read_to_end(&mut bytes)?;
        ensure!(bytes.len() as u64 == length, "a packet was cut short");
        Ok(bytes)
    }
}

/// Answers requests on a stream until the other side closes it. Calls `gone` as soon as it does,
/// also during a request.
///
/// # Errors
/// If the stream is damaged, or a reply cannot be sent.
pub fn serve<R: Read + Send + 'static>(
    from: R,
    to: impl Write,
    node: &mut Node,
    gone: impl FnOnce() + Send + 'static,
) -> Result<()> {
    // a leader sends one request at a time; one that sends more waits, and so does the reader
    let (tell, requests) = mpsc::sync_channel(1);
    let read = move || {
        let mut from = Receiver::new(from);
        loop {
            let request = from.receive();
            let more = matches!(request, Ok(Some(_)));
            let failed = request.is_err();
            if !matches!(request, Ok(None)) && tell.send(request).is_err() || failed {
                return;
            }
            if !more {
                return gone();
            }
        }
    };
    let reader = std::thread::Builder::new().name("requests".into());
    reader.spawn(read).context("starting a thread")?;
    let mut to = Sender::new(to);
    for request in requests {
        if let Some(request) = request? {
            to.send(&node.reply(&request)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(head: &[u8], body: &Arc<[u8]>) -> Packet {
        let (head, body) = (head.to_vec(), body.clone());
        Packet { head, body }
    }

    #[test]
    fn a_flipped_bit_of_a_length_is_an_error_and_no_wait_for_more() {
        let mut sent = Vec::new();
        let body = vec![1, 2].into();
        Sender::new(&mut sent).send(&packet(b"one", &body)).unwrap();
        for bit in 0..8 * FRONT {
            let mut flipped = sent.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Receiver::new(&flipped[..]).receive().unwrap_err();
            assert_eq!(
                error.to_string(),
                "a packet's lengths were damaged on their way"
            );
        }
    }

    #[test]
    fn a_message_to_many_crosses_once() {
        let (big, small): (Arc<[u8]>, Arc<[u8]>) = (vec![7; 100_000].into(), vec![1, 2].into());
        let sent = [
            packet(b"one", &big),
            packet(b"two", &big),
            packet(b"three", &small),
            packet(b"", &Arc::from([])),
            packet(b"four", &big),
        ];
        let mut bytes = Vec::new();
        let mut sender = Sender::new(&mut bytes);
        sent.iter().for_each(|p| sender.send(p).unwrap());
        assert!((200_000..201_000).contains(&bytes.len()), "{}", bytes.len());
        let mut from = Receiver::new(&bytes[..]);
        for packet in sent {
            assert_eq!(from.receive().unwrap(), Some(packet));
        }
        assert_eq!(from.receive().unwrap(), None);
    }

    #[test]
    fn what_is_cut_short_or_too_large_is_an_error_and_takes_no_memory() {
        let mut bytes = Vec::new();
        Sender::new(&mut bytes)
            .send(&packet(b"head", &vec![1; 30].into()))
            .unwrap();
        for cut in 1..bytes.len() {
            assert!(Receiver::new(&bytes[..cut]).receive().is_err(), "{cut}");
        }
        let with_sum = |bytes: &mut Vec<u8>| {
            let sum = crc32fast::hash(&bytes[..FRONT - 4]).to_le_bytes();
            bytes[FRONT - 4..FRONT].copy_from_slice(&sum);
            Receiver::new(&bytes[..]).receive().unwrap_err().to_string()
        };
        let mut long = bytes.clone();
        long[5..13].copy_from_slice(&(MAX_BODY).to_le_bytes());
        let error = with_sum(&mut long);
        assert!(error.contains("cut short"), "{error}");
        long[5..13].copy_from_slice(&u64::MAX.to_le_bytes());
        let error = with_sum(&mut long);
        assert!(error.contains("they may have"), "{error}");
        // "equal to the previous one" without a previous one
        bytes[4] = 0;
        let error = with_sum(&mut bytes);
        assert!(error.contains("repeats the message"), "{error}");
    }
}
