//! Selectors of a library as parts of this program.

use super::late::{Late, load};
use super::remote::Remote;
use crate::abi::cross::Letter;
use crate::abi::facts::RoundText;
use crate::abi::kinds::Crossing;
use crate::abi::pools::with_examples;
use crate::abi::raw::*;
use crate::message::Parcel;
use crate::{Draw, Examples, Poll, Result, Round, Selector, Stream};
use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::json;
use std::marker::PhantomData;

pub(super) struct LoadedSelector<P: ?Sized> {
    remote: Remote,
    draw: Draw,
    late: Late,
    pool: PhantomData<fn(&P)>,
}

/// What `FL_DESCRIBE` gives for a selector.
#[derive(Deserialize)]
struct AboutSelector {
    draw: Draw,
}

impl<P: ?Sized> LoadedSelector<P> {
    pub fn new(remote: Remote) -> Result<Self> {
        let draw = match remote.call(FL_DESCRIBE, "", &[], None, None)? {
            Some(answer) => remote.json::<AboutSelector>(&answer)?.draw,
            None => Draw::Unknown,
        };
        if let Draw::Poisson { rate } = draw {
            ensure!(
                (0.0..=1.0).contains(&rate),
                "{}: a rate is in 0..=1, and it says {rate}",
                remote.who()
            );
        }
        Ok(Self {
            remote,
            draw,
            late: Late::default(),
            pool: PhantomData,
        })
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

    fn poll(&mut self, round: &Round, pool: &P) -> Result<Option<Poll>> {
        let text = RoundText::of(round)?;
        let answer = pool.send(|tensors| {
            let letter = [Letter::new(tensors)];
            let stream = Some(&round.stream);
            self.remote.call(FL_POLL, &text, &letter, stream, None)
        })?;
        match answer {
            Some(answer) => self.remote.json(&answer),
            None => Ok(None),
        }
    }

    fn select(&mut self, round: &Round, pool: &P) -> Result<Vec<usize>> {
        self.late.check().context(self.remote.who())?;
        let text = RoundText::of(round)?;
        let answer = pool.send(|tensors| {
            let letter = [Letter::new(tensors)];
            let stream = Some(&round.stream);
            self.remote.must(FL_SELECT, &text, &letter, stream, None)
        })?;
        self.remote.said(&answer, round)?;
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

    fn draw(&self) -> Draw {
        self.draw
    }

    fn save(&self) -> Vec<u8> {
        self.late.save(&self.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }
}
