//! From a signature to the types that it names. A library can only speak about messages that both sides know.

use crate::message::{
    ClassMeans, Counts, Ids, Logits, Message, Models, Nothing, Params, Scalar, SoftLabels, Votes,
};
use crate::{Pool, Role, Roster, Samples};

/// Something to do with an aggregator's two messages.
pub(super) trait OnPair {
    type Out;
    fn on<I: Message, O: Message>(self) -> Self::Out;
}

/// Something to do with one message.
pub(super) trait OnOne {
    type Out;
    fn on<M: Message>(self) -> Self::Out;
}

/// Something to do with a selector's pool.
pub(super) trait OnPool {
    type Out;
    fn on<P: Crossing + ?Sized>(self) -> Self::Out;
}

/// A pool that can cross.
pub(super) trait Crossing: Pool + 'static {
    /// As tensors.
    fn send<R>(&self, f: impl FnOnce(&crate::message::Named<'_>) -> R) -> R;
    /// Back from tensors.
    fn receive<R>(
        parcel: crate::message::Parcel,
        f: impl FnOnce(&Self) -> crate::Result<R>,
    ) -> crate::Result<R>;
    /// How many there are to choose from.
    fn size(&self) -> usize;
}

macro_rules! messages {
    ($($message:ty),*) => {
        /// Calls `then` with the message of this name.
        pub(super) fn one<V: OnOne>(kind: &str, then: V) -> Option<V::Out> {
            match kind {
                $(<$message>::KIND => Some(then.on::<$message>()),)*
                _ => None,
            }
        }

        struct Second<'a, V>(&'a str, V);

        impl<V: OnPair> Second<'_, V> {
            fn with<I: Message>(self) -> Option<V::Out> {
                match self.0 {
                    $(<$message>::KIND => Some(self.1.on::<I, $message>()),)*
                    _ => None,
                }
            }
        }

        impl<V: OnPair> OnOne for Second<'_, V> {
            type Out = Option<V::Out>;
            fn on<M: Message>(self) -> Self::Out {
                self.with::<M>()
            }
        }

        /// The names of all messages that can cross.
        pub(super) const KINDS: &[&str] = &[$(<$message>::KIND),*];
    };
}
messages!(
    Params, Logits, SoftLabels, ClassMeans, Votes, Counts, Models, Scalar, Ids, Nothing
);

/// Calls `then` with the messages of `params -> params`.
pub(super) fn pair<V: OnPair>(signature: &str, then: V) -> Option<V::Out> {
    let (input, output) = signature.split_once(" -> ")?;
    one(input, Second(output, then))?
}

/// Calls `then` with the pool of this name.
pub(super) fn pool<V: OnPool>(name: &str, then: V) -> Option<V::Out> {
    match name {
        Roster::NAME => Some(then.on::<Roster>()),
        Samples::NAME => Some(then.on::<Samples>()),
        SoftLabels::NAME => Some(then.on::<SoftLabels>()),
        _ => None,
    }
}

/// Why a part of this role and signature cannot cross; `None` if it can.
pub(super) fn obstacle(role: Role, signature: &str) -> Option<String> {
    struct Any;
    impl OnPair for Any {
        type Out = ();
        fn on<I: Message, O: Message>(self) {}
    }
    impl OnOne for Any {
        type Out = ();
        fn on<M: Message>(self) {}
    }
    impl OnPool for Any {
        type Out = ();
        fn on<P: Crossing + ?Sized>(self) {}
    }
    let known = KINDS.join(", ");
    match role {
        Role::Aggregator if pair(signature, Any).is_none() => Some(format!(
            "its signature is `{signature}`; one looks like `params -> params`, with messages of {known}"
        )),
        Role::Privacy if one(signature, Any).is_none() => Some(format!(
            "its signature is `{signature}`; it must be one of {known}"
        )),
        Role::Selector if pool(signature, Any).is_none() => Some(format!(
            "its signature is `{signature}`; it must be {}, {} or {}",
            Roster::NAME,
            Samples::NAME,
            SoftLabels::NAME
        )),
        Role::Protocol => {
            Some("a protocol talks to clients through Rust types and must be linked".into())
        }
        _ => None,
    }
}

/// The role of this name: `privacy` or `privacy mechanism`.
pub(super) fn role(name: &str) -> Option<Role> {
    let short = |r: &Role| r.name().split(' ').next() == Some(name);
    Role::ALL.into_iter().find(|r| r.name() == name || short(r))
}
