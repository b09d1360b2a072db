//! Writes a message of every kind in its wire form into the folder that is named: `corpus/wire`.

use fl_core::message::{Message, Outline, Visitor, encode, visit_all};
use fl_core::{Draws, Stream};

#[derive(Clone, Copy)]
struct Write<'a>(&'a std::path::Path);

impl Visitor for Write<'_> {
    type Out = ();
    fn visit<M: Message>(self) {
        let number = |draws: &mut Draws| draws.normal() as f32;
        for form in 0..3 {
            let mut draws = Stream::root(form).draws();
            let mut shape = Stream::root(form + 10).draws();
            let mut outline = Outline::new(1, &number, &mut draws).shaped(&mut shape);
            if let Some(message) = M::sample(&mut outline) {
                let path = self.0.join(format!("{}-{form}", M::KIND));
                std::fs::write(path, encode(&message)).expect("a file");
            }
        }
    }
}

fn main() {
    let folder = std::env::args().nth(1).expect("a folder");
    visit_all(Write(std::path::Path::new(&folder)));
}
