#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fl_fuzz::run("leaf", data));
