//! `fl attack`: what a run gives away.

mod gradient;
mod inversion;
mod made;
mod membership;

use crate::run::{assemble, data_files, manifest, read};
use crate::{DataDir, Done, Failure};
use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use fl_core::{BuildContext, ClientId, Role, Stream, Trainer};
use fl_data::spec::Split;
use fl_data::{Assembled, DataSpec};
use fl_registry::{Catalogue, Spec};
use std::path::Path;

#[derive(Subcommand)]
pub enum AttackCommand {
    /// Tell from the models that a run kept who was among those they learnt from: by their loss, and beside shadow runs.
    Membership(membership::MembershipArgs),
    /// Find, from parameters that a client sends, the examples that it trained on: by search (gradient inversion), and read off a
    /// dense first layer.
    Gradient(gradient::GradientArgs),
    /// Find, from the models that a run kept, what they take each class to look like (model inversion), and how like private examples that is.
    Inversion(inversion::InversionArgs),
    /// Compare what the generator of a run makes with private examples: how near, and how alike as a whole (Frechet distance), beside
    /// test examples.
    Made(made::MadeArgs),
}

pub fn attack(command: &AttackCommand, catalogue: &Catalogue, line: &[String]) -> Done {
    match command {
        AttackCommand::Membership(args) => membership::membership(args, catalogue, line),
        AttackCommand::Gradient(args) => gradient::gradient(args, catalogue, line),
        AttackCommand::Inversion(args) => inversion::inversion(args, catalogue, line),
        AttackCommand::Made(args) => made::made(args, catalogue, line),
    }
}

/// A run that is done, with its data.
pub struct Kept {
    pub spec: Spec<DataSpec>,
    pub data: Assembled,
    pub targets: Vec<Target>,
}

impl Kept {
    fn open(
        dir: &Path,
        data: &DataDir,
        catalogue: &Catalogue,
        line: &[String],
    ) -> Result<Self, Failure> {
        let spec = read(&dir.join("spec.yaml"), &[], catalogue)?;
        if matches!(spec.data.split(), Split::Own) {
            return Err(Failure::usage(
                "the clients of this run own their data, so nobody here knows them",
            ));
        }
        let files = data_files(&spec.data, data)?;
        manifest(&spec, &spec.yaml()?, files, line)?.is_of(dir)?;
        Ok(Self {
            targets: Target::all(dir, &spec)?,
            data: assemble(&spec, data, &mut |_| {})?,
            spec,
        })
    }
}

/// A kept model, and which client's it is; the server's is nobody's.
pub struct Target {
    pub name: String,
    slot: String,
    pub client: Option<ClientId>,
}

impl Target {
    /// The models in a run folder.
    fn all(dir: &Path, spec: &Spec<DataSpec>) -> Result<Vec<Self>> {
        let kept = dir.join("models");
        let files = std::fs::read_dir(&kept)
            .with_context(|| format!("{}: the run is not done", kept.display()))?;
        let names = files.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let trainer = |slot: &str| {
            let mut parts = spec.parts.iter();
            parts.any(|part| part.slot == slot && part.decl.role == Role::Trainer)
        };
        let one = |name: String| {
            let of_client = name.rsplit_once('-');
            let of_client =
                of_client.and_then(|(slot, id)| Some((slot.to_string(), id.parse().ok()?)));
            match of_client {
                _ if trainer(&name) => Some((name.clone(), None, name)),
                Some((slot, id)) if trainer(&slot) => Some((slot, Some(id), name)),
                _ => None,
            }
        };
        let mut all: Vec<Self> = names
            .filter_map(one)
            .map(|(slot, client, name)| Self { name, slot, client })
            .collect();
        all.sort_by(|a, b| (&a.slot, a.client).cmp(&(&b.slot, b.client)));
        ensure!(
            !all.is_empty(),
            "{}: no model of a slot of the spec was kept, so there is nothing to attack",
            kept.display()
        );
        Ok(all)
    }

    /// The model as the run in `dir` left it.
    pub fn load(
        &self,
        dir: &Path,
        spec: &Spec<DataSpec>,
        data: &Assembled,
    ) -> Result<Box<dyn Trainer>> {
        let make = BuildContext {
            task: data.task.clone(),
            stream: Stream::root(spec.seed),
        };
        let path = dir.join("models").join(&self.name);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut model: Box<dyn Trainer> =
            spec.parts
                .build(Role::Trainer, &self.slot, self.client, &make)?;
        model
            .load(&bytes)
            .with_context(|| path.display().to_string())?;
        Ok(model)
    }

    /// Whom it learnt from, by their numbers.
    pub fn owners(&self, data: &Assembled) -> Vec<usize> {
        match self.client {
            Some(id) => vec![id as usize],
            None => (0..data.clients.len()).collect(),
        }
    }
}

/// A folder that goes with this.
pub struct Gone<'a>(pub &'a Path);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        // what is left of it is in the folder for what may go
        let _ = std::fs::remove_dir_all(self.0);
    }
}
