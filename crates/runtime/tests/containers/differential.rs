//! The same containers made by libcontainer and by runc.

use crate::cases;

cases![];
