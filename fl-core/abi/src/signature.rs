//! Which signatures can cross: those of kinds of messages that both sides know.

use fl_roles::message::{known_kinds, message_type, pair};
use fl_roles::{AnyPool, Role};

/// Why a part of this role and signature cannot cross; `None` if it can.
pub(super) fn obstacle(role: Role, signature: &str) -> Option<String> {
    match role {
        Role::Aggregator if pair(signature).is_none() => Some(format!(
            "its signature is `{signature}`; one looks like `params -> params`, with messages of {}, or such as the library \
             declares under `messages`",
            known_kinds()
        )),
        Role::Privacy | Role::Attack if message_type(signature).is_none() => Some(format!(
            "its signature is `{signature}`; it must be one of {}, or a message that the library declares under `messages`",
            known_kinds()
        )),
        Role::Selector if !AnyPool::NAMES.contains(&signature) => Some(format!(
            "its signature is `{signature}`; it must be one of {}",
            AnyPool::NAMES.join(", ")
        )),
        _ => None,
    }
}
