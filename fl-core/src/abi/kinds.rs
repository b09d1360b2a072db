//! From a signature to the types that it names. A library can only speak about messages that both sides know.

use crate::message::{KINDS, Message, PairVisitor, SoftLabels, Visitor, visit, visit_pair};
use crate::{Pool, Role, Roster, Samples};

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
    impl PairVisitor for Any {
        type Out = ();
        fn visit<I: Message, O: Message>(self) {}
    }
    impl Visitor for Any {
        type Out = ();
        fn visit<M: Message>(self) {}
    }
    impl OnPool for Any {
        type Out = ();
        fn on<P: Crossing + ?Sized>(self) {}
    }
    let known = KINDS.join(", ");
    match role {
        Role::Aggregator if visit_pair(signature, Any).is_none() => Some(format!(
            "its signature is `{signature}`; one looks like `params -> params`, with messages of {known}"
        )),
        Role::Privacy if visit(signature, Any).is_none() => Some(format!(
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
