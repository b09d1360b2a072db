//! Sets, splits and what is built of them, with every set that fl has.

mod build;
mod domains;
mod features;
mod files;
mod load;
mod made;
mod overview;
mod own_tests;
mod section;
mod undersampled;

use fl_plugin_data_images as _;
use fl_plugin_data_synthetic as _;
use fl_plugin_data_tables as _;
use fl_plugin_data_texts as _;
