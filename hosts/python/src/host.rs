//! What a part may ask of the program during a call.

use crate::buffer::Buffer;
use crate::marshal::{Array, answered, attached, failed};
use anyhow::{bail, ensure};
use fl_core::abi::{self, Answers, Input, OPERATIONS, OpenCall, Operation, OutgoingMessage};
use fl_core::message::{NamedTensors, Tensor, View};
use fl_core::{Problem, Result, Stream};
use ndarray::ArrayD;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

/// A message that Python sends: sender, weight, class counts, training loss, and arrays by name.
type SentMessage<'py> = (u32, f64, Option<Vec<u32>>, Option<f64>, Bound<'py, PyDict>);

/// What the program answers: an error as JSON or a text, the text, and arrays by name.
type Answer<'py> = (Option<String>, Option<String>, Bound<'py, PyDict>);

/// The program, for one call.
#[pyclass(frozen)]
pub struct Host(pub Arc<OpenCall>);

impl Host {
    /// Runs `f` with what the call has.
    fn with<T>(&self, f: impl FnOnce(&abi::Host<'_>, &Input<'_>) -> Result<T>) -> PyResult<T> {
        self.0.with(f).map_err(|error| failed(&error))
    }

    /// Lets `change` change the numbers of a writable float64 array, in row order.
    fn change(
        &self,
        values: &Bound<'_, PyAny>,
        change: impl FnOnce(&abi::Host<'_>, &mut [f64]),
    ) -> PyResult<()> {
        let buffer = PyBuffer::<f64>::get(values).ok();
        let plain = |of: &PyBuffer<f64>| !of.readonly() && of.is_c_contiguous();
        let buffer = buffer.filter(plain).ok_or_else(|| {
            PyValueError::new_err("noise is added to a writable float64 array in row order")
        })?;
        let n = buffer.item_count();
        if n == 0 {
            return Ok(());
        }
        #[allow(unsafe_code, reason = "numbers stay where Python has them")]
        // SAFETY: so many writable numbers lie there, which this thread alone uses while it holds
        // the interpreter.
        let numbers = unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast(), n) };
        self.with(|host, _| {
            change(host, numbers);
            Ok(())
        })
    }
}

#[pymethods]
impl Host {
    /// The key of the call's random stream.
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.with(|host, _| Ok(PyBytes::new(py, &host.stream().key())))
    }

    /// What a part of the program, or the program itself (0), answers to a protocol: an error, a
    /// text, and arrays by name. `back` answers what the program asks in the middle of it.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a call is made of: only `fl._protocol.requests` writes one"
    )]
    fn ask<'py>(
        &self,
        py: Python<'py>,
        part: u64,
        operation: &str,
        key: [u8; 32],
        json: &str,
        messages: Vec<SentMessage<'py>>,
        back: Option<Py<PyAny>>,
    ) -> PyResult<Answer<'py>> {
        let named = |of: &&Operation| of.name.eq_ignore_ascii_case(operation);
        let known = OPERATIONS.iter().find(named);
        let known = known.ok_or_else(|| {
            PyValueError::new_err(format!("no operation is called `{operation}`"))
        })?;
        let arrays = |(.., arrays): &SentMessage<'py>| {
            let all = arrays.iter();
            all.map(|(name, array)| Array::of(name.extract()?, &array))
                .collect::<PyResult<Vec<Array>>>()
        };
        let held = messages.iter().map(arrays).collect::<PyResult<Vec<_>>>()?;
        let tensors = held
            .iter()
            .map(|all| all.iter().map(Array::named).collect());
        let tensors: Vec<NamedTensors<'_>> = tensors.collect();
        let both = messages.iter().zip(&tensors);
        let letters = both.map(
            |((from, weight, counts, loss, _), tensors)| OutgoingMessage {
                from: *from,
                weight: *weight,
                class_counts: counts.as_deref(),
                training_loss: *loss,
                tensors,
            },
        );
        let letters: Vec<_> = letters.collect();
        let (stream, back) = (Stream::from_key(key), back.map(Back));
        // outside of what the program said, its own text is an exception
        self.with(|_, _| Ok(()))?;
        let answer = py.detach(|| {
            self.0.with(|host, _| {
                let back = back.as_ref().map(|back| back as &dyn Answers);
                host.ask(part, known.number, json, &letters, &stream, back)
            })
        });
        let out = PyDict::new(py);
        match answer {
            Ok(Some((text, tensors))) => {
                for (name, tensor) in tensors {
                    out.set_item(name, Buffer::owning(tensor))?;
                }
                Ok((None, text, out))
            }
            Ok(None) => Ok((Some("the program has no such operation".into()), None, out)),
            Err(error) => {
                let problem = error.downcast_ref::<Problem>();
                let text = format!("{error:#}");
                let json = serde_json::json!({ "text": text, "problem": problem });
                Ok((Some(json.to_string()), None, out))
            }
        }
    }

    /// Adds Laplace noise of this scale to a float64 array.
    fn laplace(&self, values: &Bound<'_, PyAny>, scale: f64) -> PyResult<()> {
        self.change(values, |host, values| host.add_laplace(values, scale))
    }

    /// Adds normal noise of this standard deviation to a float64 array.
    fn gaussian(&self, values: &Bound<'_, PyAny>, sigma: f64) -> PyResult<()> {
        self.change(values, |host, values| host.add_gaussian(values, sigma))
    }

    /// Fills a float64 array with uniform numbers in `[0, 1)`: for mechanisms that choose between
    /// labels.
    fn uniform(&self, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(values, |host, values| host.fill_uniform(values))
    }

    /// The weighted mean of the messages by name: in double precision, in client order, on the
    /// program's threads, with the bits of the aggregator `mean`.
    fn mean<'py>(&self, py: Python<'py>, weights: Vec<f64>) -> PyResult<Bound<'py, PyDict>> {
        let means = self.with(|host, input| Ok(means(host, input, &weights)))?;
        let means = means.map_err(|error| PyValueError::new_err(format!("{error:#}")))?;
        let out = PyDict::new(py);
        for (name, mean) in means {
            out.set_item(name, Buffer::owning(Tensor::F32(mean)))?;
        }
        Ok(out)
    }
}

/// The weighted means of the messages' tensors, by name.
fn means(
    host: &abi::Host<'_>,
    input: &Input<'_>,
    weights: &[f64],
) -> Result<Vec<(String, ArrayD<f32>)>> {
    let messages = input.incoming()?;
    let (n, of) = (weights.len(), messages.len());
    ensure!(n == of && of > 0, "{n} weights for {of} messages");
    let mut means = Vec::new();
    host.with_executor(&mut |exec| {
        for (at, (name, first)) in messages[0].tensors.iter().enumerate() {
            // messages are alike
            let numbers = messages.iter().map(|message| match &message.tensors[at].1 {
                View::F32(a) => Ok(a.as_standard_layout()),
                _ => bail!("only float32 tensors have a mean"),
            });
            let numbers = numbers.collect::<Result<Vec<_>>>()?;
            let slices = numbers
                .iter()
                .filter_map(|of| of.as_slice())
                .collect::<Vec<_>>();
            let mean = fl_core::weighted_mean(&slices, weights, &*exec);
            means.push((
                name.to_string(),
                ArrayD::from_shape_vec(first.shape(), mean)?,
            ));
        }
        Ok(())
    })?;
    Ok(means)
}

/// Answers what the program asks in the middle of a request: it gets the operation, the text and
/// the messages, and gives what `fl._parts.calls.call` gives.
struct Back(Py<PyAny>);

impl Answers for Back {
    fn answer(
        &self,
        _: u64,
        operation: u32,
        input: &Input<'_>,
        reply: &abi::Host<'_>,
    ) -> Result<bool> {
        let text = input.text()?;
        let known = OPERATIONS.iter().find(|of| of.number == operation);
        let name = known.map_or_else(String::new, |of| of.name.to_lowercase());
        attached(|py| {
            let call = |messages| self.0.bind(py).call1((name, text, messages));
            answered(py, input, reply, call, |_| {
                "it still uses arrays that were lent for a call: keep copies (`array.copy()`)"
                    .into()
            })
        })
    }
}
