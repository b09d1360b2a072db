//! An inbox whose numbers stay where the host has them.
//!
//! Messages own their arrays, and an inbox of 100 clients must not be copied to become one. So the arrays of the two big
//! kinds, parameters and scores, are made around memory of the host, which is never written, grown or freed through them:
//! parts see them through a shared reference only, which gives nobody the right to do any of that, and before the inbox is
//! taken apart the arrays are forgotten.

use super::cross::{message, slice, view};
use super::raw::FlMessage;
use crate::message::{Logits, Message, Params, View};
use crate::{Inbox, Mail, Result};
use anyhow::Context;
use ndarray::{Array, ArrayD, Dimension, Ix2, IxDyn};
use std::any::Any;
use std::mem::{ManuallyDrop, forget};

/// An inbox of the host.
pub(super) struct Lent<M: Message> {
    inbox: ManuallyDrop<Inbox<M>>,
    /// Where the numbers of the host begin, ascending.
    hosts: Vec<*const f32>,
}

impl<M: Message> Lent<M> {
    /// # Safety
    /// The messages and all that they point to are valid and not written to for as long as this lives.
    pub unsafe fn new(messages: &[FlMessage]) -> Result<Self> {
        let mut out = Self {
            inbox: ManuallyDrop::new(Inbox::trusted(Vec::with_capacity(messages.len()))),
            hosts: Vec::new(),
        };
        for raw in messages {
            // SAFETY: as the caller says. What has been lent so far is given back by `drop` if this fails.
            let body = unsafe { out.body(raw) }.with_context(|| format!("client {}", raw.from))?;
            // SAFETY: as the caller says.
            let counts = (!raw.class_counts.is_null())
                .then(|| unsafe { slice(raw.class_counts, raw.classes as usize) }.to_vec());
            out.inbox.push_trusted(Mail {
                from: raw.from,
                weight: raw.weight,
                class_counts: counts,
                body,
            });
        }
        out.hosts.sort_unstable();
        Ok(out)
    }

    pub fn inbox(&self) -> &Inbox<M> {
        &self.inbox
    }

    /// # Safety
    /// As [`Lent::new`].
    unsafe fn body(&mut self, raw: &FlMessage) -> Result<M> {
        let mut none = None::<M>;
        if let Some(slot) = (&mut none as &mut dyn Any).downcast_mut::<Option<Params>>() {
            // SAFETY: as the caller says.
            *slot = unsafe { self.params(raw) };
        } else if let Some(slot) = (&mut none as &mut dyn Any).downcast_mut::<Option<Logits>>() {
            // SAFETY: as the caller says.
            *slot = unsafe { self.logits(raw) };
        }
        match none {
            Some(body) => Ok(body),
            // SAFETY: as the caller says.
            None => unsafe { message(raw) },
        }
    }

    /// `None` if these are no parameters.
    ///
    /// # Safety
    /// As [`Lent::new`].
    unsafe fn params(&mut self, raw: &FlMessage) -> Option<Params> {
        // SAFETY: as the caller says.
        let tensors = unsafe { slice(raw.tensors, raw.count) };
        // SAFETY: as the caller says.
        let views = tensors.iter().map(|t| unsafe { view(t) }.ok());
        let views: Vec<_> = views.collect::<Option<_>>()?;
        if !views.iter().all(|(_, v)| matches!(v, View::F32(_))) {
            return None;
        }
        let mut all = std::collections::BTreeMap::new();
        for (name, view) in views {
            if let View::F32(a) = view {
                // an array that is replaced would be freed, so the first of a name stays
                all.entry(name.to_string())
                    // SAFETY: as the caller says.
                    .or_insert_with(|| unsafe { self.borrow(a) });
            }
        }
        Some(Params(all))
    }

    /// `None` if these are no plain scores.
    ///
    /// # Safety
    /// As [`Lent::new`].
    unsafe fn logits(&mut self, raw: &FlMessage) -> Option<Logits> {
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
                let values = unsafe { self.borrow(values) };
                Some(Logits::new(rows.iter().copied().collect(), values))
            }
            _ => None,
        }
    }

    /// An array around memory of the host; a copy if its numbers do not lie in row order.
    ///
    /// # Safety
    /// As [`Lent::new`].
    unsafe fn borrow<D: Dimension>(
        &mut self,
        view: ndarray::ArrayView<'_, f32, D>,
    ) -> Array<f32, D> {
        if view.is_empty() || !view.is_standard_layout() {
            return view.as_standard_layout().into_owned();
        }
        let start = view.as_ptr();
        self.hosts.push(start);
        // SAFETY: so many initialised numbers lie at `start`, as `view` shows. They are not of this side's allocator, so
        // the vector must not grow or be dropped: nobody gets more than a shared reference, and `Lent::drop` forgets it.
        let numbers = unsafe { Vec::from_raw_parts(start.cast_mut(), view.len(), view.len()) };
        // SAFETY: the view has this shape and is in row order, so the shape has as many numbers as the vector.
        unsafe { Array::from_shape_vec_unchecked(view.raw_dim(), numbers) }
    }

    fn forget<D: Dimension>(&self, array: Array<f32, D>) {
        if !array.is_empty() && self.hosts.binary_search(&array.as_ptr()).is_ok() {
            forget(array.into_raw_vec_and_offset().0);
        }
    }
}

impl<M: Message> Drop for Lent<M> {
    fn drop(&mut self) {
        self.hosts.sort_unstable();
        // SAFETY: taken once, here, and never looked at again.
        let inbox = unsafe { ManuallyDrop::take(&mut self.inbox) };
        let mut slot = Some(inbox);
        let slot = &mut slot as &mut dyn Any;
        if let Some(inbox) = slot.downcast_mut::<Option<Inbox<Params>>>() {
            for mail in inbox.take().into_iter().flat_map(Inbox::into_mail) {
                for (_, array) in mail.body.0 {
                    self.forget::<IxDyn>(array as ArrayD<f32>);
                }
            }
        } else if let Some(inbox) = slot.downcast_mut::<Option<Inbox<Logits>>>() {
            for mail in inbox.take().into_iter().flat_map(Inbox::into_mail) {
                self.forget(mail.body.values);
            }
        }
    }
}
