//! The program as a user runs it, and what it loads at run time. One binary for all: each would be
//! linked to everything again.

mod abi;
mod account;
mod attack;
mod audit;
mod cases;
mod commands;
mod common;
mod devices;
mod distillation;
mod exports;
mod fedgen;
mod folders;
mod generators;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod golden;
mod hostile;
mod isolation;
mod kills;
mod ledger;
mod library;
mod made;
mod methods;
mod mistakes;
mod neighbours;
mod new;
mod nodes;
mod noise;
mod own_data;
mod own_messages;
mod packages;
mod pages;
mod pixels;
mod private;
mod processes;
mod protocols;
mod report;
mod schema;
mod sources;
mod specs;
mod state;
mod stop_when;
mod study;
mod try_part;
mod verify;
mod voting;
