//! An inbox whose numbers stay where the host has them.
//!
//! Messages own their arrays, and an inbox of 100 clients must not be copied to become one. So the
//! arrays of the two big kinds, parameters and scores, are made around memory of the host, which is
//! never written, grown or freed through them: parts see them through a shared reference only,
//! which allows none of these, and when the call ends the arrays are forgotten.
//! What a part keeps from call to call is a [`InboxBuffer`]: the names and the places, without
//! numbers.

use crate::marshal::{message, message_of, slice, view};
use crate::raw::{FL_F32, FlMessage, FlTensor};
use anyhow::{Context, bail};
use fl_roles::message::{Logits, Message, MessageType, Params, View};
use fl_roles::{AnyInbox, ClientMessage, Inbox, Result};
use ndarray::{Array, Array1, ArrayD, ArrayView, Dimension, Ix1, Ix2, IxDyn};
use std::collections::BTreeMap;
use std::mem::{forget, replace};

/// What an inbox is made of, between calls. Parameters keep their names and maps, for the next
/// call's are mostly the same: ten maps made and freed are most of what lending costs a short
/// message.
pub(crate) struct InboxBuffer {
    inbox: BufferedMessages,
    /// Where the numbers of the host begin, in the order in which the arrays stand in the inbox.
    hosts: Vec<usize>,
}

/// No array in it is the host's, but while something is [`BorrowedInbox`].
enum BufferedMessages {
    Params(Inbox<Params>),
    Logits(Inbox<Logits>),
    /// Copies, while something is lent.
    Other(&'static MessageType, Option<Box<dyn AnyInbox>>),
}

impl InboxBuffer {
    /// For messages of this type.
    pub fn new(of: &'static MessageType) -> Self {
        let inbox = match of.kind {
            Params::KIND => BufferedMessages::Params(Inbox::trusted(Vec::new())),
            Logits::KIND => BufferedMessages::Logits(Inbox::trusted(Vec::new())),
            _ => BufferedMessages::Other(of, None),
        };
        Self {
            inbox,
            hosts: Vec::new(),
        }
    }
}

/// An inbox of the host; the shelf gets it back without the numbers.
pub(crate) struct BorrowedInbox<'a>(&'a mut InboxBuffer);

impl<'a> BorrowedInbox<'a> {
    /// # Safety
    /// There is at least one message. All that the messages point to is valid and not written to
    /// for as long as this lives.
    pub unsafe fn new(shelf: &'a mut InboxBuffer, messages: &[FlMessage]) -> Result<Self> {
        // what has been lent so far is given back by `drop` if the rest fails
        let lent = Self(shelf);
        let InboxBuffer { inbox, hosts } = &mut *lent.0;
        match inbox {
            BufferedMessages::Params(inbox) => {
                let all = inbox.mail_mut();
                all.resize_with(messages.len(), || {
                    ClientMessage::new(0, 0.0, Params::default())
                });
                for (mail, raw) in all.iter_mut().zip(messages) {
                    let body = &mut mail.body;
                    // SAFETY: as the caller says.
                    unsafe { params(raw, body, hosts) }.with_context(|| client(raw))?;
                    (mail.from, mail.weight) = (raw.from, raw.weight);
                    // SAFETY: as the caller says.
                    mail.class_counts = unsafe { raw.counts() }.map(<[u32]>::to_vec);
                    mail.training_loss = raw.loss();
                }
            }
            BufferedMessages::Logits(inbox) => {
                for raw in messages {
                    // SAFETY: as the caller says.
                    let mail = unsafe { mail(raw, |raw| scores(raw, hosts)) }?;
                    inbox.mail_mut().push(mail);
                }
            }
            BufferedMessages::Other(of, inbox) => {
                // SAFETY: as the caller says.
                let one = |raw| unsafe { mail(raw, |raw| message_of(raw, of)) };
                let all = messages.iter().map(one).collect::<Result<_>>()?;
                *inbox = Some(of.trusted_inbox(all)?);
            }
        }
        Ok(lent)
    }

    pub fn inbox(&self) -> &dyn AnyInbox {
        match &self.0.inbox {
            BufferedMessages::Params(inbox) => inbox,
            BufferedMessages::Logits(inbox) => inbox,
            BufferedMessages::Other(_, inbox) => inbox.as_deref().expect("it is lent"),
        }
    }
}

/// # Safety
/// As [`BorrowedInbox::new`]; `body` may look at all that the message points to.
unsafe fn mail<M>(
    raw: &FlMessage,
    body: impl FnOnce(&FlMessage) -> Result<M>,
) -> Result<ClientMessage<M>> {
    let body = body(raw).with_context(|| client(raw))?;
    // SAFETY: as the caller says.
    Ok(unsafe { raw.mail(body) })
}

fn client(raw: &FlMessage) -> String {
    format!("client {}", raw.from)
}

/// Parameters, in the map of an earlier message if the names are the same.
///
/// # Safety
/// As [`BorrowedInbox::new`].
unsafe fn params(raw: &FlMessage, body: &mut Params, hosts: &mut Vec<usize>) -> Result<()> {
    // SAFETY: as the caller says.
    let tensors = unsafe { slice(raw.tensors, raw.count) };
    if tensors.iter().any(|t| t.dtype != FL_F32) {
        // SAFETY: as the caller says.
        *body = unsafe { message(raw) }?;
        return Ok(());
    }
    // SAFETY: as the caller says.
    let named = |t: &FlTensor| unsafe { slice(t.name.data, t.name.length) };
    let mut both = body.0.keys().zip(tensors);
    if body.0.len() == tensors.len() && both.all(|(name, t)| name.as_bytes() == named(t)) {
        for (array, t) in body.0.values_mut().zip(tensors) {
            // SAFETY: as the caller says. The array that is replaced is not the host's.
            *array = unsafe { tensor(t, hosts) }?;
        }
        return Ok(());
    }
    body.0 = BTreeMap::new();
    let mut in_order = BTreeMap::new();
    for t in tensors {
        // SAFETY: as the caller says.
        let name = unsafe { t.name.read("a tensor's name") }?;
        // an array that is replaced would be freed, so the first of a name stays
        in_order.entry(name).or_insert(t);
    }
    for (name, t) in in_order {
        // SAFETY: as the caller says.
        body.0.insert(name.into(), unsafe { tensor(t, hosts) }?);
    }
    Ok(())
}

/// One tensor of floats.
///
/// # Safety
/// As [`BorrowedInbox::new`]; it is of floats.
unsafe fn tensor(raw: &FlTensor, hosts: &mut Vec<usize>) -> Result<ArrayD<f32>> {
    let n = raw.dimensions as usize;
    // SAFETY: as the caller says.
    let (shape, strides) = unsafe { (slice(raw.shape, n), slice(raw.strides, n)) };
    let mut numbers = 1;
    let in_row_order = shape.len() == n
        && strides.len() == n
        && shape.iter().zip(strides).rev().all(|(length, stride)| {
            let fits = *length == 1 || *stride == numbers as isize;
            numbers *= length;
            fits
        });
    if in_row_order && numbers > 0 && !raw.data.is_null() {
        // nearly all are like this, and need no view in between
        // SAFETY: in row order, so that many numbers lie there one after the other.
        return Ok(unsafe {
            let (data, n) = (raw.data.cast(), numbers);
            // with dimensions that the compiler knows, arrays are made more than twice as fast
            match *shape {
                [a] => around(data, n, Ix1(a), hosts).into_dyn(),
                [a, b] => around(data, n, Ix2(a, b), hosts).into_dyn(),
                _ => around(data, n, IxDyn(shape), hosts),
            }
        });
    }
    // SAFETY: as the caller says.
    match unsafe { view(raw) }? {
        (_, View::F32(view)) => Ok(view.as_standard_layout().into_owned()),
        (name, _) => bail!("`{name}` is not f32"),
    }
}

/// Scores, packed ones too.
///
/// # Safety
/// As [`BorrowedInbox::new`].
unsafe fn scores(raw: &FlMessage, hosts: &mut Vec<usize>) -> Result<Logits> {
    // SAFETY: as the caller says.
    match unsafe { logits(raw, hosts) } {
        Some(scores) => Ok(scores),
        // SAFETY: as the caller says.
        None => unsafe { message(raw) },
    }
}

/// `None` if these are no plain scores.
///
/// # Safety
/// As [`BorrowedInbox::new`].
unsafe fn logits(raw: &FlMessage, hosts: &mut Vec<usize>) -> Option<Logits> {
    // SAFETY: as the caller says.
    let [rows, values] = (unsafe { slice(raw.tensors, raw.count) }) else {
        return None;
    };
    // SAFETY: as the caller says.
    let (rows, values) = unsafe { (view(rows).ok()?, view(values).ok()?) };
    match (rows, values) {
        (("rows", View::U32(rows)), ("values", View::F32(values)))
            if rows.ndim() == 1 && values.ndim() == 2 && rows.len() == values.shape()[0] =>
        {
            let values = values.into_dimensionality::<Ix2>().ok()?;
            // SAFETY: as the caller says.
            let values = unsafe { borrow(values, hosts) };
            Some(Logits::new(rows.iter().copied().collect(), values))
        }
        _ => None,
    }
}

/// An array around memory of the host; a copy if its numbers do not lie in row order.
///
/// # Safety
/// As [`BorrowedInbox::new`].
unsafe fn borrow<D: Dimension>(
    view: ArrayView<'_, f32, D>,
    hosts: &mut Vec<usize>,
) -> Array<f32, D> {
    if view.is_empty() || !view.is_standard_layout() {
        return view.as_standard_layout().into_owned();
    }
    // SAFETY: as the caller says; the view is in row order.
    unsafe { around(view.as_ptr(), view.len(), view.raw_dim(), hosts) }
}

/// An array around memory of the host.
///
/// # Safety
/// As [`BorrowedInbox::new`]; `n` numbers lie at `start`, at least one, and `shape` has as many.
unsafe fn around<D: Dimension>(
    start: *const f32,
    n: usize,
    shape: D,
    hosts: &mut Vec<usize>,
) -> Array<f32, D> {
    hosts.push(start.addr());
    // SAFETY: `n` initialised numbers lie at `start`. They are not of this side's allocator, so
    // the vector must not grow or be dropped: parts get a shared reference only, and
    // `BorrowedInbox::drop` forgets it.
    let numbers = unsafe { Vec::from_raw_parts(start.cast_mut(), n, n) };
    // SAFETY: the shape has as many numbers as the vector, as the caller says.
    unsafe { Array::from_shape_vec_unchecked(shape, numbers) }
}

/// Forgets an array that is the host's, which is the next of `hosts` then; drops a copy.
fn give_back<D: Dimension>(array: Array<f32, D>, hosts: &mut &[usize]) {
    // an array without numbers has an address too, but never one of the host's
    if hosts.first() == Some(&array.as_ptr().addr()) {
        *hosts = &hosts[1..];
        forget(array.into_raw_vec_and_offset().0);
    }
}

impl Drop for BorrowedInbox<'_> {
    fn drop(&mut self) {
        let InboxBuffer { inbox, hosts } = &mut *self.0;
        let left = &mut hosts.as_slice();
        match inbox {
            BufferedMessages::Params(inbox) => {
                let all = inbox.mail_mut().iter_mut();
                for array in all.flat_map(|mail| mail.body.0.values_mut()) {
                    let nothing = Array1::from_vec(Vec::new()).into_dyn();
                    give_back(replace(array, nothing), left);
                }
            }
            BufferedMessages::Logits(inbox) => {
                for mail in inbox.mail_mut().drain(..) {
                    give_back(mail.body.values, left);
                }
            }
            BufferedMessages::Other(_, inbox) => *inbox = None,
        }
        hosts.clear();
    }
}
