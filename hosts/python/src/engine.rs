//! An engine in Python: a courier that carries packets, and the node at the other end.

use crate::{Wrong, catalogue, wrong};
use anyhow::{Context, bail};
use fl_core::{ClientId, Problem, Result};
use fl_engine::{EngineFactory, NodeConfig};
use fl_registry::Document;
use fl_remote::wire::Packet;
use fl_remote::{RemoteClients, Transport};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A courier in Python: an object with `send(client, head, body)`,
/// `receive() -> (client, (head, body) | None, why)` and `end(keep)`; whom it reaches (nobody:
/// whoever the spec knows); and how many requests it takes at once.
pub type PythonCourier = (Py<PyAny>, Vec<ClientId>, usize);

/// The engine that it is.
pub fn engine((courier, clients, window): PythonCourier) -> EngineFactory {
    let courier = Arc::new(courier);
    EngineFactory(Arc::new(move |leader, spec, folder| {
        let carried = PythonTransport {
            courier: courier.clone(),
            clients: clients.clone(),
            window,
            folder: folder.into(),
            last: None,
        };
        Box::new(RemoteClients::new(carried, leader, spec))
    }))
}

struct PythonTransport {
    courier: Arc<Py<PyAny>>,
    clients: Vec<ClientId>,
    window: usize,
    folder: PathBuf,
    /// The body that was sent last, as both sides have it: one to everybody is one object in Python
    /// too.
    last: Option<(Arc<[u8]>, Py<PyBytes>)>,
}

/// A packet as Python has it, or why there is none.
type ReceivedPacket<'py> = (ClientId, Option<Bytes<'py>>, String);

/// A head and a body.
type Bytes<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The packet that they are.
fn packet((head, body): &Bytes<'_>) -> Packet {
    Packet {
        head: head.as_bytes().to_vec(),
        body: body.as_bytes().into(),
    }
}

impl Transport for PythonTransport {
    fn clients(&self) -> Vec<ClientId> {
        self.clients.clone()
    }

    fn window(&self) -> usize {
        self.window
    }

    fn send(&mut self, to: ClientId, request: Packet) -> Result<()> {
        Python::attach(|py| {
            let same = |(sent, _): &&(Arc<[u8]>, _)| Arc::ptr_eq(sent, &request.body);
            let body = match self.last.as_ref().filter(same) {
                Some((_, body)) => body.clone_ref(py),
                None => {
                    let body = PyBytes::new(py, &request.body).unbind();
                    self.last = Some((request.body, body.clone_ref(py)));
                    body
                }
            };
            let head = PyBytes::new(py, &request.head);
            let args = (to, head, body);
            self.courier
                .call_method1(py, "send", args)
                .map_err(said(py))?;
            Ok(())
        })
    }

    fn receive(&mut self) -> Result<(ClientId, Result<Packet>)> {
        Python::attach(|py| {
            let received = self.courier.call_method0(py, "receive").map_err(said(py))?;
            let received: PyResult<ReceivedPacket<'_>> = received.extract(py);
            let (from, said, why) = received.map_err(said(py)).context("of `receive`")?;
            let packet = said.as_ref().map(packet);
            Ok((from, packet.ok_or(Problem::Absent(why).into())))
        })
    }

    fn end(&mut self, keep: bool) -> Result<()> {
        Python::attach(|py| {
            self.courier
                .call_method1(py, "end", (keep,))
                .map_err(said(py))
        })?;
        if keep {
            Ok(())
        } else {
            std::fs::remove_dir_all(&self.folder)
                .with_context(|| format!("removing {}", self.folder.display()))
        }
    }
}

/// What an exception says.
fn said(py: Python<'_>) -> impl Fn(PyErr) -> anyhow::Error {
    move |error| {
        let kind = error.get_type(py);
        let kind = kind.name().map_or("an exception".into(), |n| n.to_string());
        anyhow::anyhow!("the engine: {kind}: {}", error.value(py))
    }
}

/// A node of a spec. Any thread may ask it; one at a time is answered.
#[pyclass(frozen)]
pub struct Node(Mutex<fl_remote::Node>);

#[pymethods]
impl Node {
    /// The node, or what is wrong with the spec or with where it is.
    #[staticmethod]
    #[pyo3(signature = (name, text, set, *, home, own, data_dir))]
    fn make(
        py: Python<'_>,
        name: String,
        text: String,
        set: Vec<String>,
        home: PathBuf,
        own: Option<PathBuf>,
        data_dir: Option<PathBuf>,
    ) -> (Option<Self>, Option<Wrong>) {
        let config = NodeConfig {
            home,
            own,
            data_dir: fl_data_kit::data_dir(data_dir.as_deref()),
        };
        let make = || {
            let spec = Document::parse(&name, text.as_bytes());
            let spec = match fl_engine::set_by_leader(&spec, &set) {
                Ok(spec) => spec,
                Err(refused) => return Err(("set", refused.to_string(), "[]".to_string())),
            };
            let node = || fl_engine::node(&fl_engine::read(&spec, &catalogue()?)?, &config);
            node().map_err(|error| wrong(&error))
        };
        match py.detach(make) {
            Ok(node) => (Some(Self(Mutex::new(node))), None),
            Err(wrong) => (None, Some(wrong)),
        }
    }

    /// Whom it can answer for.
    fn clients(&self, py: Python<'_>) -> Vec<ClientId> {
        py.detach(|| {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clients()
        })
    }

    /// The reply to a request, as head and body. What goes wrong is a reply too; only what is no
    /// request is an exception.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        head: Bound<'py, PyBytes>,
        body: Bound<'py, PyBytes>,
    ) -> PyResult<Bytes<'py>> {
        let request = packet(&(head, body));
        let reply = py.detach(|| {
            let mut node = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reply = || node.reply(&request);
            match catch_unwind(AssertUnwindSafe(reply)) {
                Ok(reply) => reply,
                Err(_) => bail!("the node panicked"),
            }
        });
        let reply = reply.map_err(|error| PyRuntimeError::new_err(format!("{error:#}")))?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok((bytes(&reply.head), bytes(&reply.body)))
    }
}
