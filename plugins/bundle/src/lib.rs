#![doc = include_str!("../README.md")]

#[cfg(feature = "accounting")]
use fl_plugin_accounting as _;
#[cfg(feature = "attacks")]
use fl_plugin_attacks as _;
#[cfg(feature = "averaging")]
use fl_plugin_averaging as _;
#[cfg(feature = "baselines")]
use fl_plugin_baselines as _;
#[cfg(feature = "class-distill")]
use fl_plugin_class_distill as _;
#[cfg(feature = "client-selectors")]
use fl_plugin_client_selectors as _;
#[cfg(feature = "clustered-rounds")]
use fl_plugin_clustered_rounds as _;
#[cfg(feature = "co-distill")]
use fl_plugin_co_distill as _;
#[cfg(feature = "data-files")]
use fl_plugin_data_files as _;
#[cfg(feature = "data-images")]
use fl_plugin_data_images as _;
#[cfg(feature = "data-synthetic")]
use fl_plugin_data_synthetic as _;
#[cfg(feature = "data-tables")]
use fl_plugin_data_tables as _;
#[cfg(feature = "data-texts")]
use fl_plugin_data_texts as _;
#[cfg(feature = "dense-prediction")]
use fl_plugin_dense_prediction as _;
#[cfg(feature = "dp-sgd")]
use fl_plugin_dp_sgd as _;
#[cfg(feature = "fair")]
use fl_plugin_fair as _;
#[cfg(feature = "fediod")]
use fl_plugin_fediod as _;
#[cfg(feature = "fedkd")]
use fl_plugin_fedkd as _;
#[cfg(feature = "fedkt")]
use fl_plugin_fedkt as _;
#[cfg(feature = "generators")]
use fl_plugin_generators as _;
#[cfg(feature = "one-shot")]
use fl_plugin_one_shot as _;
#[cfg(feature = "param-rounds")]
use fl_plugin_param_rounds as _;
#[cfg(feature = "robust")]
use fl_plugin_robust as _;
#[cfg(feature = "sample-selectors")]
use fl_plugin_sample_selectors as _;
#[cfg(feature = "server-optimisers")]
use fl_plugin_server_optimisers as _;
#[cfg(feature = "trainer-dfdx")]
use fl_plugin_trainer_dfdx as _;
#[cfg(feature = "trainer-linear")]
use fl_plugin_trainer_linear as _;
#[cfg(feature = "trainer-trees")]
use fl_plugin_trainer_trees as _;
