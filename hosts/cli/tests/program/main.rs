//! The program as a user runs it, and what it loads at run time. One binary for all: each would be linked to everything again.

mod abi;
mod account;
mod apart;
mod cases;
mod commands;
mod common;
mod distillation;
mod endure;
mod exports;
mod folders;
mod generators;
mod hostile;
mod library;
mod mistakes;
mod new;
mod nodes;
mod noise;
mod own_data;
mod private;
mod processes;
mod report;
mod schema;
mod specs;
mod study;
mod try_part;
mod voting;
