//! Lists of messages, whose entries are counted while they are read: a short message of a library
//! may hold lists that take far more memory than its bytes.

use anyhow::{Context, bail};
use fl_roles::Result;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt::{Formatter, Result as Written};
use std::marker::PhantomData;

thread_local! {
    /// How many more entries the message that this thread reads may have; `None`: it has too many.
    static LEFT: Cell<Option<usize>> = const { Cell::new(Some(0)) };
}

/// Reads a message whose lists have at most `entries` entries, all together.
pub(super) fn unpacked<M: DeserializeOwned>(bytes: &[u8], entries: usize) -> Result<M> {
    LEFT.set(Some(entries));
    let read = postcard::from_bytes(bytes);
    if LEFT.get().is_none() {
        bail!("the lists of a message have more than {entries} entries");
    }
    read.context("a message that cannot be read")
}

/// Reads a list.
pub(super) fn counted<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Entries<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut Formatter<'_>) -> Written {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = from.next_element()? {
                LEFT.set(LEFT.get().and_then(|left| left.checked_sub(1)));
                if LEFT.get().is_none() {
                    return Err(A::Error::custom("too many entries"));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Entries(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::super::{ENTRIES, Reply, SharedTensor};
    use super::*;

    #[test]
    fn exact_a_message_has_as_many_entries_as_it_may_however_they_are_nested() {
        let tensor = || SharedTensor {
            name: String::new(),
            dtype: 0,
            shape: vec![1; 3],
            at: 0,
        };
        let read = |reply: &Reply, entries| {
            let bytes = postcard::to_stdvec(reply).unwrap();
            unpacked::<Reply>(&bytes, entries).map(|reply| (reply.parts.len(), reply.tensors.len()))
        };
        let reply = Reply {
            parts: vec![0; 5],
            tensors: vec![tensor(), tensor()],
            ..Reply::default()
        };
        // five parts, two tensors of three sides
        assert_eq!(read(&reply, 13).unwrap(), (5, 2));
        let error = format!("{:#}", read(&reply, 12).unwrap_err());
        assert!(error.contains("more than 12 entries"), "{error}");
        // the next message has a count of its own
        assert_eq!(read(&reply, 13).unwrap(), (5, 2));
        let long = Reply {
            parts: vec![0; ENTRIES + 1],
            ..Reply::default()
        };
        assert!(read(&long, ENTRIES).is_err());
        assert_eq!(read(&long, usize::MAX).unwrap(), (ENTRIES + 1, 0));
    }
}
