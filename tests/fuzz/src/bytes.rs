//! Choices out of bytes.

/// Bytes that choices are taken from, until there are none; then every choice is the first.
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    pub fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// One of `n`.
    pub fn of(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// One of these.
    pub fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.of(all.len())]
    }

    /// Once in `n` times.
    pub fn rarely(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    /// At most `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let n = n.min(self.0.len());
        self.0.split_off(..n).unwrap_or_default()
    }

    /// As many bytes as the next says.
    pub fn some(&mut self) -> &'a [u8] {
        let n = usize::from(self.byte());
        self.take(n)
    }
}
