//! Rules of the RFCs, in a file for each section. All files form one program, because each program
//! would compile the complete server.

mod no_binding;
mod relay_prefixes;
mod reserved_ports;
mod rfc3489_classic;
mod rfc5780_discovery;
mod rfc6062_s5_peers;
mod rfc6062_s5_requests;
mod rfc7635_tokens;
mod rfc8016_mobility;
mod rfc8016_successor;
mod rfc8016_workers;
mod rfc8489_s06_processing;
mod rfc8489_s09_long_term;
mod rfc8489_s10_alternate_server;
mod rfc8656_s05_general;
mod rfc8656_s07_allocate;
mod rfc8656_s07_answer;
mod rfc8656_s08_refresh;
mod rfc8656_s09_permissions;
mod rfc8656_s10_create_permission;
mod rfc8656_s11_send_data;
mod rfc8656_s12_channels;
mod rfc8656_s13_15_ip_header;
mod rfc8656_s18_attributes;
mod rfc8656_s21_security;
mod session_history;
mod takeover;
mod takeover_copies;
mod takeover_questions;
mod waits;
