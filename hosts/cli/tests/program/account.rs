//! `fl account`: prices without a run, and the noise that an epsilon needs.

use crate::common::{fails, fl, json, out};
use serde_json::Value;
use std::path::Path;

fn account(args: &str) -> Value {
    let mut all = vec!["account"];
    all.extend(args.split(' '));
    all.push("--json");
    json(Path::new("."), &all)
}

fn epsilon(answer: &Value) -> f64 {
    answer["epsilon"].as_f64().unwrap()
}

#[test]
fn prices_are_those_of_the_literature() {
    // ten releases of 1/2 each, by basic composition; Renyi accounting finds a little less
    let laplace = account("laplace --scale 2 --times 10");
    let all = laplace["all"].as_array().unwrap();
    let basic = all.iter().find(|a| a["accountant"] == "basic").unwrap();
    assert_eq!(
        (&basic["epsilon"], &basic["delta"]),
        (&5.0.into(), &0.0.into())
    );
    assert!(epsilon(&laplace) < 5.0);
    // DP-SGD, q = 0.01, sigma / sensitivity = 2, 1000 steps: 0.7307 by opacus and dp-accounting
    // with fewer orders
    let sgd = account("gaussian --sigma 4 --sensitivity 2 --rate 0.01 --times 1000");
    let all = sgd["all"].as_array().unwrap();
    let renyi = all.iter().find(|a| a["accountant"] == "rdp").unwrap();
    assert!((0.68..0.7308).contains(&epsilon(renyi)), "{sgd}");
    assert_eq!(renyi["neighbours"], "removed");
    // and its distribution of losses says less
    assert_eq!(sgd["accountant"], "pld");
    assert!((0.6..0.63).contains(&epsilon(&sgd)), "{sgd}");
    // one Gaussian release of sigma 1: 4.3766 at 1e-5 (Balle and Wang 2018, figure 1's exact curve)
    let once = account("gaussian --sigma 1");
    assert_eq!(once["accountant"], "analytic-gaussian");
    assert!((epsilon(&once) - 4.3766).abs() < 1e-3, "{once}");
    // a sample of fixed size costs more than one of independent draws, and less than everything
    let fixed = epsilon(&account(
        "gaussian --sigma 4 --draw 10 --of 1000 --times 100",
    ));
    let poisson = epsilon(&account("gaussian --sigma 4 --rate 0.01 --times 100"));
    let all = epsilon(&account("gaussian --sigma 4 --times 100"));
    assert!(poisson < fixed && fixed < all, "{poisson} {fixed} {all}");
    // ln(1001 / 801) and 200 / 1000 (Sun and Lyu 2020)
    let nfdp = account("nfdp --draws 200 --of 1000");
    assert!((epsilon(&nfdp) - libm::log(1001.0f64 / 801.0)).abs() < 1e-12);
    assert_eq!(nfdp["delta"], 0.2);
    let response = account("randomised-response --epsilon 0.1 --times 100 --level party");
    assert_eq!(response["unit"], "party");
    assert!(epsilon(&response) < 5.0, "{response}");
}

#[test]
fn the_noise_that_is_found_keeps_the_wanted_epsilon_and_hardly_more() {
    for (args, what) in [
        ("laplace --sensitivity 3 --times 7", "scale"),
        ("gaussian --times 100", "sigma"),
        ("gaussian --rate 0.02 --times 50", "sigma"),
        ("randomised-response --times 20", "epsilon-of-each"),
        ("nfdp --of 5000", "draws"),
    ] {
        let answer = account(&format!("{args} --target 1.5"));
        let found = epsilon(&answer);
        assert!(found <= 1.5 && found > 1.49, "{args}: {answer}");
        assert!(answer[what].as_f64().unwrap() > 0.0, "{args}: {answer}");
    }
    let table = out(
        Path::new("."),
        &["account", "gaussian", "--target", "1", "--times", "100"],
    );
    assert!(table.contains("sigma 37.309 keeps epsilon 1"), "{table}");
}

#[test]
fn votes_with_gaussian_noise_have_a_price_too() {
    let dir = tempfile::tempdir().unwrap();
    let votes = dir.path().join("votes.csv");
    std::fs::write(&votes, "240,5,5\n130,120,0\n").unwrap();
    let votes = votes.to_str().unwrap();
    let plain = account(&format!("pate --votes {votes} --sigma 40"));
    let confident = account(&format!(
        "pate --votes {votes} --sigma 40 --threshold 200 --check 150"
    ));
    assert!(
        epsilon(&plain) > 0.0
            && epsilon(&plain) <= plain["epsilon_data_independent"].as_f64().unwrap()
    );
    assert!(epsilon(&confident) > epsilon(&plain), "the check costs too");
    assert_eq!(plain["data_dependent"], true);
}

#[test]
fn what_makes_no_sense_is_said() {
    for (args, said) in [
        (
            "laplace --scale 0",
            "--scale: must be a finite number above 0, got 0",
        ),
        (
            "laplace --scale inf",
            "--scale: must be a finite number above 0, got inf",
        ),
        (
            "laplace --scale 1 --delta 1",
            "--delta: must be above 0 and below 1, got 1",
        ),
        (
            "gaussian --sigma 1 --rate 1.5",
            "--rate: must be above 0 and at most 1, got 1.5",
        ),
        (
            "gaussian --sigma 1 --draw 9 --of 8",
            "--draw: must be 1 to 8 (--of), got 9",
        ),
        (
            "gaussian --target -1",
            "--target: must be a finite number above 0, got -1",
        ),
        (
            "nfdp --draws 9 --of 8",
            "--draws: at most 8 (--of) without replacement, got 9",
        ),
        ("nfdp --draws 0 --of 0", "--of: must be at least 1, got 0"),
        (
            "nfdp --draws 1 --of 8 --level party",
            "--level: a sample of examples protects an example, and no whole client",
        ),
        (
            "gaussian --sigma 5 --rate 0.01 --of 100 --level example",
            "--level: with --rate and --of the number of units is public, and an example added or",
        ),
        ("laplace", "--scale"),
        ("gaussian --epsilon 2", "'--target'"),
    ] {
        let mut all = vec!["account"];
        all.extend(args.split(' '));
        let (code, text) = fails(Path::new("."), &all);
        assert!(code == 2 && text.contains(said), "{args}: {code} {text}");
    }
}

/// Every observer sees the number of clients that a round drew. The numbers are those of two data
/// sets that differ in one client show: all other clients send nothing, or what hides it worst.
#[test]
fn bounded_a_sample_of_public_size_costs_what_its_size_tells() {
    for (args, nothing, worst) in [
        ("--rate 0.01 --of 100 --times 100", 1.292, 5.745),
        ("--rate 0.01 --of 1 --times 100", 8.615, 8.615),
        (
            "--rate 0.001 --of 1000 --times 1000 --delta 1e-6",
            0.354,
            4.444,
        ),
    ] {
        let answer = account(&format!("gaussian --sigma 1 {args}"));
        assert_eq!(answer["unit"], "party", "{answer}");
        for price in answer["all"].as_array().unwrap() {
            let epsilon = price["epsilon"].as_f64().unwrap();
            assert!(epsilon >= worst && worst >= nothing, "{args}: {price}");
            assert!(epsilon < 1.4 * worst, "{args}: {price}");
            assert_eq!(price["neighbours"], "removed");
        }
        assert_eq!(answer["all"].as_array().unwrap().len(), 2, "{answer}");
    }
}

#[test]
fn a_rate_without_a_number_says_for_whom_its_price_is() {
    let said = |more: &[&str]| {
        let args = ["account", "gaussian", "--rate", "0.1", "--target", "4"];
        let done = fl(Path::new("."), &[&args[..], more].concat());
        String::from_utf8(done.stderr).unwrap()
    };
    let secret = "a secret number of units in each draw";
    assert!(said(&[]).contains(secret), "{}", said(&[]));
    assert_eq!(said(&["--of", "200"]), "");
}

#[test]
fn a_privacy_mechanism_is_found_by_both_of_its_words() {
    let of = |role: &str| out(Path::new("."), &["list", role]);
    assert_eq!(of("mechanisms"), of("privacy"));
}
