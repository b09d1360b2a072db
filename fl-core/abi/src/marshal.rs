//! What both sides share: texts, tensors and messages as C types, and back.

use super::raw::{
    FL_BITS, FL_F32, FL_F64, FL_I64, FL_MAGIC, FL_U8, FL_U32, FL_VERSION, FlHost, FlInput,
    FlLibrary, FlMessage, FlTensor, FlText,
};
use anyhow::{Context, bail, ensure};
pub(super) use fl_roles::__private::plain;
use fl_roles::message::{
    AnyMessage, Bits, Erased, Logits, Message, MessageType, NamedTensors, Params, TensorMap, View,
};
use fl_roles::{AnyInbox, ClientId, ClientMessage, Result};
use ndarray::{ArrayRef, ArrayViewD, ArrayViewMutD, Axis, Dimension, IxDyn, ShapeBuilder};
use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};

/// The longest text that is read from the other side.
pub(super) const LONGEST: usize = 16 << 20;

impl FlLibrary {
    /// A table of this interface without any function yet.
    pub const OF_THIS_VERSION: Self = Self {
        magic: FL_MAGIC,
        version: FL_VERSION,
        size: size_of::<Self>() as u32,
        describe: None,
        create: None,
        call: None,
        drop: None,
        free: None,
    };
}

/// The sizes of these structures in interface 1. Later ones are longer: what they have more stands
/// at the end.
pub(super) const SHORTEST_TABLE: usize = offset_of!(FlLibrary, free) + size_of::<usize>();
const SHORTEST_INPUT: usize = offset_of!(FlInput, count) + size_of::<usize>();
const SHORTEST_HOST: usize = offset_of!(FlHost, call) + size_of::<usize>();

/// A structure of the other side, which has `size` bytes there, as this side knows it: what it
/// lacks is zero, so a function is NULL, and what it has more is left out.
///
/// # Safety
/// `from` points to `size` bytes, and a `T` of zeros is valid.
pub(super) unsafe fn of_size<T>(from: *const T, size: usize) -> T {
    let mut own = MaybeUninit::<T>::zeroed();
    let bytes = size.min(size_of::<T>());
    // SAFETY: `from` has `size` bytes, as the caller says, and `own` the size of a `T`. The bytes
    // that are not copied are zero, which is valid.
    unsafe {
        let (from, to) = (from.cast::<u8>(), own.as_mut_ptr().cast::<u8>());
        from.copy_to_nonoverlapping(to, bytes);
        own.assume_init()
    }
}

impl FlHost {
    /// One of the other side; `None` if it is NULL or too short.
    ///
    /// # Safety
    /// `from` is NULL or points to as many bytes as it says.
    pub(super) unsafe fn read(from: *const Self) -> Option<Self> {
        if from.is_null() {
            return None;
        }
        // SAFETY: not NULL, and every such structure begins with its size.
        let size = unsafe { (&raw const (*from).size).read() };
        // SAFETY: as the caller says; zeros are no functions.
        (size >= SHORTEST_HOST).then(|| unsafe { of_size(from, size) })
    }
}

impl FlInput {
    /// Borrows its text and messages: the result must not outlive them.
    pub(super) fn of(text: &str, messages: &[FlMessage]) -> Self {
        Self {
            size: size_of::<Self>(),
            text: FlText::of(text),
            messages: messages.as_ptr(),
            count: messages.len(),
        }
    }

    /// One of the other side.
    ///
    /// # Errors
    /// If it is NULL or too short.
    ///
    /// # Safety
    /// `from` is NULL or points to as many bytes as it says.
    pub(super) unsafe fn read(from: *const Self) -> Result<Self> {
        ensure!(!from.is_null(), "a call without input");
        // SAFETY: not NULL, and every such structure begins with its size.
        let size = unsafe { (&raw const (*from).size).read() };
        ensure!(size >= SHORTEST_INPUT, "an input of {size} bytes");
        // SAFETY: as the caller says; zeros are an empty text and no messages.
        Ok(unsafe { of_size(from, size) })
    }
}

impl FlMessage {
    /// The training loss, if there is one.
    pub(super) fn loss(&self) -> Option<f64> {
        (!self.training_loss.is_nan()).then_some(self.training_loss)
    }

    /// Its envelope, around a body.
    ///
    /// # Safety
    /// As [`FlMessage::counts`].
    pub(super) unsafe fn mail<T>(&self, body: T) -> ClientMessage<T> {
        ClientMessage {
            from: self.from,
            weight: self.weight,
            // SAFETY: as the caller says.
            class_counts: unsafe { self.counts() }.map(<[u32]>::to_vec),
            training_loss: self.loss(),
            body,
        }
    }

    /// The sender's examples of each class, if they are there.
    ///
    /// # Safety
    /// The pointers are valid for `'a`, as `FlMessage` says.
    pub(super) unsafe fn counts<'a>(&self) -> Option<&'a [u32]> {
        // SAFETY: as the caller says.
        let counts = unsafe { slice(self.class_counts, self.classes as usize) };
        (!self.class_counts.is_null()).then_some(counts)
    }
}

impl FlText {
    /// Borrows `text`: the result must not outlive it.
    pub fn of(text: &str) -> Self {
        Self {
            data: text.as_ptr(),
            length: text.len(),
        }
    }

    pub(super) const EMPTY: Self = Self {
        data: std::ptr::null(),
        length: 0,
    };

    /// The text; `what` names it in errors.
    ///
    /// # Errors
    /// When it is no UTF-8, or too long.
    ///
    /// # Safety
    /// `data` points to `length` bytes that live for `'a`, or is NULL.
    pub unsafe fn read<'a>(self, what: &str) -> Result<&'a str> {
        ensure!(
            self.length <= LONGEST,
            "{what} has {} bytes; at most {LONGEST} are read",
            self.length
        );
        if self.length == 0 {
            return Ok("");
        }
        ensure!(
            !self.data.is_null(),
            "{what} is a NULL of {} bytes",
            self.length
        );
        // SAFETY: not NULL, and the caller promises that `length` bytes live for 'a.
        let bytes = unsafe { std::slice::from_raw_parts(self.data, self.length) };
        std::str::from_utf8(bytes).map_err(|e| {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            anyhow::anyhow!("{what} is no UTF-8 ({e}): {shown:?}")
        })
    }
}

/// `length` things at `data`; nothing at all if there are none.
///
/// # Safety
/// `data` points to `length` valid `T` that live for `'a`, unless `length` is 0.
pub(super) unsafe fn slice<'a, T>(data: *const T, length: usize) -> &'a [T] {
    if length == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(data, length) }
}

/// An array as C sees it. It borrows from `name` and `a` and must not outlive them.
fn array<T>(name: &str, a: &ArrayRef<T, IxDyn>, dtype: u32) -> FlTensor {
    FlTensor {
        name: FlText::of(name),
        data: a.as_ptr().cast(),
        shape: a.shape().as_ptr(),
        strides: a.strides().as_ptr(),
        dimensions: a.ndim() as u32,
        dtype,
    }
}

/// A tensor as C sees it. It borrows from `name` and `view` and must not outlive them.
fn tensor(name: &str, view: &View<'_>) -> FlTensor {
    static STRIDE: isize = 1;
    // bits have no strides; nothing that crosses has more dimensions
    static ONES: [isize; 16] = [1; 16];
    match view {
        View::F32(a) => array(name, a, FL_F32),
        View::F64(a) => array(name, a, FL_F64),
        View::U32(a) => array(name, a, FL_U32),
        View::I64(a) => array(name, a, FL_I64),
        View::Bits(bits) => FlTensor {
            name: FlText::of(name),
            data: bits.packed().as_ptr().cast(),
            shape: bits.shape().as_ptr(),
            strides: ONES.as_ptr(),
            dimensions: bits.shape().len().min(ONES.len()) as u32,
            dtype: FL_BITS,
        },
        View::U8(bytes) => FlTensor {
            name: FlText::of(name),
            data: bytes.as_ptr().cast(),
            // filled in by `with_messages`, which keeps the length somewhere
            shape: std::ptr::null(),
            strides: &STRIDE,
            dimensions: 1,
            dtype: FL_U8,
        },
    }
}

/// Writes the numbers of a tensor there, in row order.
///
/// # Safety
/// At `to` is room for all numbers, aligned and not shared.
pub(super) unsafe fn write(view: &View<'_>, to: *mut u8) {
    /// # Safety
    /// As [`write()`].
    unsafe fn copy<T: Copy>(view: &ArrayViewD<'_, T>, to: *mut u8) {
        if let Some(all) = view.as_slice() {
            // SAFETY: as the caller says.
            unsafe { copy_all(all, to) };
            return;
        }
        // SAFETY: as the caller says.
        let mut room = unsafe { ArrayViewMutD::from_shape_ptr(view.raw_dim(), to.cast()) };
        room.assign(view);
    }
    /// # Safety
    /// As [`write()`].
    unsafe fn copy_all<T: Copy>(all: &[T], to: *mut u8) {
        // SAFETY: as the caller says.
        unsafe {
            to.cast::<T>()
                .copy_from_nonoverlapping(all.as_ptr(), all.len())
        };
    }
    // SAFETY: as the caller says.
    unsafe {
        match view {
            View::F32(a) => copy(a, to),
            View::F64(a) => copy(a, to),
            View::U32(a) => copy(a, to),
            View::U8(b) => copy_all(b, to),
            View::I64(a) => copy(a, to),
            View::Bits(b) => copy_all(b.packed(), to),
        }
    }
}

/// One message on its way out.
pub struct OutgoingMessage<'a, 'n> {
    /// The sender's number.
    pub from: ClientId,
    /// How much it counts: finite, at least 0.
    pub weight: f64,
    /// The sender's examples of each class, if the program knows them.
    pub class_counts: Option<&'a [u32]>,
    /// The mean loss of the training that made the message, if the program knows it.
    pub training_loss: Option<f64>,
    /// Its tensors.
    pub tensors: &'a NamedTensors<'n>,
}

impl<'a, 'n> OutgoingMessage<'a, 'n> {
    /// One that has no sender to speak of.
    pub fn new(tensors: &'a NamedTensors<'n>) -> Self {
        Self {
            from: 0,
            weight: 1.0,
            class_counts: None,
            training_loss: None,
            tensors,
        }
    }

    /// A client's message, whose body has these tensors.
    pub fn of<T>(mail: &'a ClientMessage<T>, tensors: &'a NamedTensors<'n>) -> Self {
        Self {
            from: mail.from,
            weight: mail.weight,
            class_counts: mail.class_counts.as_deref(),
            training_loss: mail.training_loss,
            tensors,
        }
    }
}

/// Runs `f` with `letters` as C sees them.
pub(super) fn with_messages<R>(
    letters: &[OutgoingMessage<'_, '_>],
    f: impl FnOnce(&[FlMessage]) -> R,
) -> R {
    let all = letters.iter().flat_map(|l| l.tensors);
    let lengths: Vec<usize> = all
        .clone()
        .filter_map(|(_, v)| match v {
            View::U8(bytes) => Some(bytes.len()),
            _ => None,
        })
        .collect();
    let mut next = lengths.iter();
    let tensors: Vec<FlTensor> = all
        .map(|(name, view)| {
            let mut raw = tensor(name, view);
            if raw.shape.is_null() {
                raw.shape = next.next().map_or(std::ptr::null(), std::ptr::from_ref);
            }
            raw
        })
        .collect();
    let mut rest = tensors.as_slice();
    let messages: Vec<FlMessage> = letters
        .iter()
        .map(|l| {
            let own = rest.split_off(..l.tensors.len()).unwrap_or_default();
            let facts = (l.from, l.weight, l.class_counts, l.training_loss);
            envelope(facts, own)
        })
        .collect();
    f(&messages)
}

/// A message as C sees it. It borrows from `counts` and `tensors` and must not outlive them.
fn envelope(
    (from, weight, counts, training_loss): (ClientId, f64, Option<&[u32]>, Option<f64>),
    tensors: &[FlTensor],
) -> FlMessage {
    FlMessage {
        from,
        classes: counts.map_or(0, <[u32]>::len) as u32,
        weight,
        class_counts: counts.map_or(std::ptr::null(), <[u32]>::as_ptr),
        tensors: tensors.as_ptr(),
        count: tensors.len(),
        training_loss: training_loss.unwrap_or(f64::NAN),
    }
}

/// Runs `f` with an inbox as C sees it.
pub(super) fn with_inbox<R>(inbox: &dyn AnyInbox, f: impl FnOnce(&[FlMessage]) -> R) -> R {
    // Parameters are described as they stand: lists of views in between were a quarter of the cost
    // of a short call.
    if let Some(inbox) = inbox.get::<Params>() {
        let all = inbox.iter().map(|mail| mail.body.0.len()).sum();
        let mut tensors = Vec::with_capacity(all);
        for ClientMessage { body, .. } in inbox.iter() {
            tensors.extend(body.0.iter().map(|(name, a)| array(name, a, FL_F32)));
        }
        let mut rest = tensors.as_slice();
        let messages = inbox.iter().map(|mail| {
            let own = rest.split_off(..mail.body.0.len()).unwrap_or_default();
            let counts = mail.class_counts.as_deref();
            envelope((mail.from, mail.weight, counts, mail.training_loss), own)
        });
        return f(&messages.collect::<Vec<_>>());
    }
    with_inbox_letters(inbox, None, |letters| with_messages(letters, f))
}

/// Runs `f` with an inbox, and a message that comes after it.
pub(super) fn with_inbox_letters<R>(
    inbox: &dyn AnyInbox,
    after: Option<&dyn AnyMessage>,
    f: impl FnOnce(&[OutgoingMessage<'_, '_>]) -> R,
) -> R {
    let contents: Vec<_> = inbox.iter().map(|mail| content(mail.body)).collect();
    let after = after.map(content);
    let letters = inbox
        .iter()
        .zip(&contents)
        .map(|(mail, tensors)| OutgoingMessage {
            from: mail.from,
            weight: mail.weight,
            class_counts: mail.class_counts,
            training_loss: mail.training_loss,
            tensors,
        });
    let letters = letters.chain(after.iter().map(OutgoingMessage::new));
    f(&letters.collect::<Vec<_>>())
}

/// The same numbers, borrowed for less long.
pub(super) fn shorter<'b>(view: &'b View<'_>) -> View<'b> {
    match view {
        View::F32(a) => View::F32(a.view()),
        View::F64(a) => View::F64(a.view()),
        View::U32(a) => View::U32(a.view()),
        View::U8(b) => View::U8((&**b).into()),
        View::I64(a) => View::I64(a.view()),
        View::Bits(b) => View::Bits(b.view()),
    }
}

/// The content of a message, and the grid of its wire form, if its scores are packed
/// on.
pub(super) fn content(message: &dyn AnyMessage) -> NamedTensors<'_> {
    let mut all = message.content();
    let scores = message.as_any().downcast_ref::<Logits>();
    if scores.is_some_and(|l| l.grid().is_some()) {
        let more = message.sent().into_iter().filter(|(n, _)| n != "rows");
        all.extend(more);
    }
    all
}

/// A tensor of the other side as a view, and its name.
///
/// # Safety
/// Every pointer of `raw` is valid for `'a`, as `FlTensor` says.
pub(super) unsafe fn view<'a>(raw: &FlTensor) -> Result<(&'a str, View<'a>)> {
    // SAFETY: as the caller says.
    let name = unsafe { raw.name.read("a tensor's name") }?;
    let n = raw.dimensions as usize;
    // SAFETY: as the caller says.
    let (shape, strides) = unsafe { (slice(raw.shape, n), slice(raw.strides, n)) };
    ensure!(
        shape.len() == n && strides.len() == n,
        "tensor `{name}` has no shape"
    );
    ensure!(
        !raw.data.is_null() || shape.contains(&0),
        "tensor `{name}` has a shape, and no numbers"
    );
    // SAFETY: as the caller says.
    let view = unsafe { numbers(name, raw.dtype, raw.data, (shape, Some(strides))) }?;
    Ok((name, view))
}

/// The numbers of a tensor with this name and type, and this shape and these strides; `None`: in
/// row order.
///
/// # Safety
/// There are such numbers at `data`, which live for `'a`.
pub(super) unsafe fn numbers<'a>(
    name: &str,
    dtype: u32,
    data: *const c_void,
    (shape, strides): (&[usize], Option<&[isize]>),
) -> Result<View<'a>> {
    /// # Safety
    /// As [`numbers`].
    unsafe fn of<'a, T>(
        data: *const c_void,
        shape: &[usize],
        strides: Option<&[isize]>,
    ) -> ArrayViewD<'a, T> {
        let mut data = data.cast::<T>();
        if shape.contains(&0) {
            data = std::ptr::NonNull::dangling().as_ptr();
            // SAFETY: an array of no numbers reads none.
            return unsafe { ArrayViewD::from_shape_ptr(IxDyn(shape), data) };
        }
        let Some(strides) = strides else {
            // SAFETY: as the caller says.
            return unsafe { ArrayViewD::from_shape_ptr(IxDyn(shape), data) };
        };
        // ndarray requires the lowest address and positive steps first
        for (n, s) in shape.iter().zip(strides).filter(|(_, s)| **s < 0) {
            // SAFETY: the last number of this axis is one of the tensor's.
            data = unsafe { data.offset((*n as isize - 1) * *s) };
        }
        let mut steps = IxDyn::zeros(strides.len());
        for (to, s) in steps.slice_mut().iter_mut().zip(strides) {
            *to = s.unsigned_abs();
        }
        // SAFETY: the same numbers as the tensor's, each axis with a negative stride from its other
        // end.
        let mut view = unsafe { ArrayViewD::from_shape_ptr(IxDyn(shape).strides(steps), data) };
        for (axis, _) in strides.iter().enumerate().filter(|(_, s)| **s < 0) {
            view.invert_axis(Axis(axis));
        }
        view
    }
    // SAFETY: as the caller says, `dtype` included.
    Ok(unsafe {
        match dtype {
            FL_F32 => View::F32(of(data, shape, strides)),
            FL_F64 => View::F64(of(data, shape, strides)),
            FL_U32 => View::U32(of(data, shape, strides)),
            FL_U8 => {
                let n = shape.len();
                ensure!(n == 1, "tensor `{name}` of bytes has {n} dimensions");
                View::U8(slice(data.cast::<u8>(), shape[0]).into())
            }
            FL_I64 => View::I64(of(data, shape, strides)),
            FL_BITS => {
                let n = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
                let n = n.with_context(|| format!("tensor `{name}` has the shape {shape:?}"))?;
                let packed = slice(data.cast::<u8>(), n.div_ceil(8));
                let bits = Bits::new(shape.to_vec(), packed);
                View::Bits(bits.with_context(|| format!("tensor `{name}`"))?)
            }
            other => bail!("tensor `{name}` has the unknown type {other}"),
        }
    })
}

/// The tensors of a message of the other side, copied.
///
/// # Safety
/// Every pointer of `message` is valid, as `FlMessage` says.
pub(super) unsafe fn copied(message: &FlMessage) -> Result<TensorMap> {
    // SAFETY: as the caller says.
    let tensors = unsafe { slice(message.tensors, message.count) };
    let one = |raw| {
        // SAFETY: as the caller says.
        let (name, view) = unsafe { view(raw) }?;
        Ok((name.to_string(), view.to_tensor()))
    };
    Ok(TensorMap::new(
        tensors.iter().map(one).collect::<Result<_>>()?,
    ))
}

/// As [`copied`], as a message.
///
/// # Safety
/// As [`copied`].
pub(super) unsafe fn message<M: Message>(raw: &FlMessage) -> Result<M> {
    // SAFETY: as the caller says.
    M::from_tensors(unsafe { copied(raw) }?).with_context(|| format!("a {} message", M::KIND))
}

/// As [`message`], of this type.
///
/// # Safety
/// As [`copied`].
pub(super) unsafe fn message_of(raw: &FlMessage, of: &'static MessageType) -> Result<Erased> {
    // SAFETY: as the caller says.
    let made = of.from_tensors(unsafe { copied(raw) }?);
    made.with_context(|| format!("a {} message", of.kind))
}
