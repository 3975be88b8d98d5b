//! Network devices: what they are, and what of the kernel path they can carry.
