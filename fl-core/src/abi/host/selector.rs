//! Selectors of a library as parts of this program.

use super::late::{Late, load};
use super::remote::Remote;
use crate::abi::cross::Letter;
use crate::abi::kinds::Crossing;
use crate::abi::pools::with_examples;
use crate::abi::raw::*;
use crate::message::Parcel;
use crate::{Examples, Result, Selector, Stream};
use anyhow::{Context, ensure};
use serde_json::json;
use std::marker::PhantomData;

pub(super) struct LoadedSelector<P: ?Sized> {
    remote: Remote,
    late: Late,
    pool: PhantomData<fn(&P)>,
}

impl<P: ?Sized> LoadedSelector<P> {
    pub fn new(remote: Remote) -> Self {
        Self {
            remote,
            late: Late::default(),
            pool: PhantomData,
        }
    }
}

impl<P: Crossing + ?Sized> Selector for LoadedSelector<P> {
    type Pool = P;

    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()> {
        let text = json!({ "classes": own.labels().classes() }).to_string();
        with_examples(own, |tensors| {
            let letter = [Letter::new(tensors)];
            self.remote.call(FL_FIT, &text, &letter, Some(stream), None)
        })?;
        Ok(())
    }

    fn select(&mut self, pool: &P, stream: &Stream) -> Result<Vec<usize>> {
        self.late.check().context(self.remote.who())?;
        let answer = pool.send(|tensors| {
            let letter = [Letter::new(tensors)];
            self.remote.must(FL_SELECT, "", &letter, Some(stream), None)
        })?;
        let positions = Parcel::new(answer.tensors).list("positions");
        let positions = positions.context(self.remote.who())?;
        let ascend = positions.is_sorted_by(|a, b| a < b);
        let last = positions.last().copied().map_or(0, |p| p as usize + 1);
        ensure!(
            ascend && last <= pool.size(),
            "{}: its positions must ascend without repeats and be below {}",
            self.remote.who(),
            pool.size()
        );
        Ok(positions.into_iter().map(|p| p as usize).collect())
    }

    fn save(&self) -> Vec<u8> {
        self.late.save(&self.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }
}
