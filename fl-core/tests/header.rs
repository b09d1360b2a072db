//! `include/fl_plugin.h` says in C what `abi/src/raw.rs` says in Rust.
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The lines before the declarations.
const HEAD: &str = r#"/* The interface between fl and the libraries that it loads. Generated from fl-core/abi/src/raw.rs; do not edit.
 *
 * A library defines one symbol, the table `fl_plugin`; plugins/example-c is a whole one in 100 lines. */
#ifndef FL_PLUGIN_H
#define FL_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

"#;

/// What makes the declarations pleasant to use.
const TAIL: &str = r#"#if defined(_WIN32)
#define FL_EXPORT __declspec(dllexport)
#else
#define FL_EXPORT __attribute__((visibility("default")))
#endif

/* The one symbol of a library: `const FlLibrary fl_plugin = {FL_MAGIC, FL_VERSION, sizeof(FlLibrary), ..};` */
extern FL_EXPORT const FlLibrary fl_plugin;

/* A C string as a text. */
static inline FlText fl_text(const char *s) {
  FlText text;
  text.data = (const uint8_t *)s;
  text.length = strlen(s);
  return text;
}

/* Ends a call: `return fl_fail(host, "trim", "must be below 0.5");` */
static inline int32_t fl_fail(const FlHost *host, const char *setting, const char *why) {
  host->fail(host->context, fl_text(setting), fl_text(why));
  return FL_ERROR;
}

/* The number of a setting that is a number; the host has filled in its default, and has checked its range. `otherwise` if
 * it is something else. The name must not stand in a mapping among the settings too: this is no JSON parser. */
static inline double fl_number(FlText settings, const char *name, double otherwise) {
  size_t n = strlen(name), i, k;
  char digits[40], *end;
  double found;
  for (i = 0; i + n + 3 <= settings.length; i++) {
    const char *at = (const char *)settings.data + i;
    if (at[0] == '"' && memcmp(at + 1, name, n) == 0 && at[n + 1] == '"' && at[n + 2] == ':') {
      for (k = 0, i += n + 3; i < settings.length && k + 1 < sizeof digits; k++, i++) {
        digits[k] = (char)settings.data[i];
      }
      digits[k] = 0;
      found = strtod(digits, &end);
      return end == digits ? otherwise : found;
    }
  }
  return otherwise;
}

#ifdef __cplusplus
}
#endif

#endif
"#;

/// Stands for `->`, whose `>` is no bracket.
const ARROW: &str = "\u{1}";

/// Splits at the commas that stand in no bracket.
fn split(list: &str) -> Vec<String> {
    let (mut depth, mut out, mut one) = (0, Vec::new(), String::new());
    for c in list.replace("->", ARROW).chars() {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            out.push(std::mem::take(&mut one));
        } else {
            one.push(c);
        }
    }
    out.push(one);
    out.retain(|s| !s.trim().is_empty());
    out.iter().map(|s| s.trim().replace(ARROW, "->")).collect()
}

/// `name` declared as a C variable of a Rust type.
fn declare(ty: &str, name: &str) -> String {
    if let Some(inner) = ty.strip_prefix("*const ") {
        return format!("const {}", declare(inner, &format!("*{name}")));
    }
    if let Some(inner) = ty.strip_prefix("*mut ") {
        return declare(inner, &format!("*{name}"));
    }
    if let Some(array) = ty.strip_prefix('[') {
        let (of, n) = array.trim_end_matches(']').split_once("; ").unwrap();
        return declare(of, &format!("{name}[{n}]"));
    }
    if let Some(function) = ty.strip_prefix("Option<unsafe extern \"C\" fn(") {
        let function = function.strip_suffix('>').unwrap();
        let end = function.rfind(')').unwrap();
        let result = function[end + 1..].trim().strip_prefix("-> ");
        let arguments = split(&function[..end]);
        let arguments: Vec<String> = arguments
            .iter()
            .map(|a| a.split_once(": ").unwrap())
            .map(|(name, ty)| declare(ty, name))
            .collect();
        let pointer = format!("(*{name})({})", arguments.join(", "));
        return declare(result.unwrap_or("c_void"), &pointer);
    }
    let c = match ty {
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "i32" => "int32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "isize" => "ptrdiff_t",
        "f32" => "float",
        "f64" => "double",
        "c_void" => "void",
        own if own.starts_with("Fl") => own,
        other => panic!("no C type for `{other}`"),
    };
    format!("{c} {name}").replace("* ", "*")
}

fn comment(lines: &mut Vec<String>, indent: &str) -> String {
    let text = lines.join(&format!("\n{indent} * "));
    lines.clear();
    match text.as_str() {
        "" => text,
        text => format!("{indent}/* {text} */\n"),
    }
}

/// A struct's fields: their docs, names and types. A type may go over several lines.
fn fields(body: &str) -> Vec<(Vec<String>, String, String)> {
    let (mut out, mut docs, mut code) = (Vec::new(), Vec::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim().to_string());
            continue;
        }
        code += &line.replace("->", ARROW);
        code.push(' ');
        let open = |a, b| code.matches(a).count() > code.matches(b).count();
        if !line.ends_with(',') || open('(', ')') || open('<', '>') {
            continue;
        }
        let words: Vec<&str> = code.split_whitespace().collect();
        let field = words.join(" ").replace("( ", "(").replace("< ", "<");
        let field = field.replace(", )", ")").replace(", >", ">");
        let field = field.replace(ARROW, "->");
        let (name, ty) = field.trim_end_matches(',').split_once(": ").unwrap();
        let name = name.strip_prefix("pub ").unwrap();
        out.push((std::mem::take(&mut docs), name.into(), ty.into()));
        code.clear();
    }
    out
}

fn header(rust: &str) -> String {
    let mut out = HEAD.to_string();
    let mut docs = Vec::new();
    let mut lines = rust.lines();
    while let Some(line) = lines.next() {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim().to_string());
        } else if let Some(constant) = line.strip_prefix("pub const ") {
            let (name, rest) = constant.split_once(": ").unwrap();
            let (ty, value) = rest.trim_end_matches(';').split_once(" = ").unwrap();
            let value = match ty {
                "u64" => format!("UINT64_C({})", value.replace('_', "")),
                "u32" => format!("{value}u"),
                _ => value.into(),
            };
            out += &comment(&mut docs, "");
            let _ = writeln!(out, "#define {name} {value}");
        } else if let Some(name) = line.strip_prefix("pub struct ") {
            out += &comment(&mut docs, "");
            let name = name.trim_end_matches(" {");
            let body: Vec<&str> = lines.by_ref().take_while(|l| *l != "}").collect();
            // a function of it may take it
            let _ = writeln!(out, "typedef struct {name} {name};\nstruct {name} {{");
            for (mut docs, name, ty) in fields(&body.join("\n")) {
                out += &comment(&mut docs, "  ");
                let _ = writeln!(out, "  {};", declare(&ty, &name));
            }
            let _ = writeln!(out, "}};");
        } else if line.is_empty() && !out.ends_with("\n\n") {
            out.push('\n');
        }
    }
    out + "\n" + TAIL
}

#[test]
fn exact_the_committed_header_is_current() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rust = std::fs::read_to_string(here.join("abi/src/raw.rs")).unwrap();
    let (path, now) = (here.join("include/fl_plugin.h"), header(&rust));
    if std::env::var_os("FL_UPDATE").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "include/fl_plugin.h is not what abi/src/raw.rs says; update it with: FL_UPDATE=1 cargo test -p fl-core --test header"
    );
}

#[test]
fn the_header_compiles_as_c_and_as_cpp() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, standard, language) in [("cc", "c11", "c"), ("c++", "c++17", "c++")] {
        let found = Command::new(compiler).arg("--version").output();
        if !found.is_ok_and(|o| o.status.success()) {
            eprintln!("skipped: there is no `{compiler}` here");
            continue;
        }
        let source =
            std::env::temp_dir().join(format!("fl_plugin_{}.{language}", std::process::id()));
        std::fs::write(
            &source,
            "#include <fl_plugin.h>\nsize_t the_size(void);\nsize_t the_size(void) { return sizeof fl_plugin; }\n",
        )
        .unwrap();
        let out = Command::new(compiler)
            .arg(format!("-std={standard}"))
            .args([
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-fsyntax-only",
                "-x",
                language,
            ])
            .arg("-I")
            .args([&include, &source])
            .output()
            .unwrap();
        std::fs::remove_file(&source).unwrap();
        assert!(
            out.status.success(),
            "{compiler}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}
