//! The list of all messages that the core knows: what can cross the C interface, what `fl try` reads and writes, what
//! the conformance kit makes up, what the table of messages shows.

use super::{
    ClassMeans, Counts, GradientSum, Ids, Logits, Mask, Message, Models, Nothing, Params, Scalar,
    SoftLabels, Votes,
};

/// Something to do with a message of which the name is known, and not the type.
pub trait Visitor {
    /// What comes of it.
    type Out;
    /// Does it.
    fn visit<M: Message>(self) -> Self::Out;
}

/// Something to do with an aggregator's two messages.
pub trait PairVisitor {
    /// What comes of it.
    type Out;
    /// Does it.
    fn visit<I: Message, O: Message>(self) -> Self::Out;
}

macro_rules! kinds {
    ($($message:ident),* $(,)?) => {
        /// The names of all messages of the core.
        pub const KINDS: &[&str] = &[$($message::KIND),*];

        /// Calls `visitor` with the message of this name; `None` if no message of the core is called so.
        ///
        /// ```
        /// use fl_core::message::{Message, Visitor, visit};
        /// struct Tensors;
        /// impl Visitor for Tensors {
        ///     type Out = usize;
        ///     fn visit<M: Message>(self) -> usize {
        ///         M::COLUMNS.len()
        ///     }
        /// }
        /// assert_eq!(visit("logits", Tensors), Some(2));
        /// assert_eq!(visit("gradients", Tensors), None);
        /// ```
        pub fn visit<V: Visitor>(kind: &str, visitor: V) -> Option<V::Out> {
            match kind {
                $($message::KIND => Some(visitor.visit::<$message>()),)*
                _ => None,
            }
        }

        /// Calls a visitor with every message, in the order of [`KINDS`].
        pub fn visit_all<V: Visitor + Clone>(visitor: V) -> Vec<V::Out> {
            vec![$(visitor.clone().visit::<$message>()),*]
        }

        struct Second<'a, V>(&'a str, V);

        impl<V: PairVisitor> Visitor for Second<'_, V> {
            type Out = Option<V::Out>;
            fn visit<I: Message>(self) -> Self::Out {
                match self.0 {
                    $($message::KIND => Some(self.1.visit::<I, $message>()),)*
                    _ => None,
                }
            }
        }
    };
}

// one line a message, in the order in which users see them
kinds! {
    Params,
    GradientSum,
    Logits,
    SoftLabels,
    ClassMeans,
    Votes,
    Counts,
    Models,
    Mask,
    Scalar,
    Ids,
    Nothing,
}

/// Calls `visitor` with the messages of a signature such as `params -> params`; `None` if the core does not know both.
pub fn visit_pair<V: PairVisitor>(signature: &str, visitor: V) -> Option<V::Out> {
    let (input, output) = signature.split_once(" -> ")?;
    visit(input, Second(output, visitor))?
}
