//! Tests through real pipes, with real processes.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test may fail where it stands, and is no library")]
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, reason = "what only tests of Linux need"))]

mod attach;
mod attach_faults;
mod audit;
mod backup;
mod blame;
mod budget;
mod bytes;
mod capture;
mod capture_beside;
mod capture_startup;
mod capture_states;
mod capture_tmux;
mod checker;
mod clients;
mod context;
mod context_e2e;
mod context_engine;
mod context_engine_e2e;
mod context_engine_faults;
mod control;
mod database_logs;
mod defect;
mod demo;
mod dependencies;
mod docs;
mod doctor;
mod doctor_hub;
mod drift;
mod drift_e2e;
mod e2e;
mod endings;
mod faults;
mod filters;
#[cfg(feature = "fleet")]
mod fleet_agent;
#[cfg(feature = "fleet")]
mod fleet_answers;
#[cfg(feature = "fleet")]
mod fleet_check;
#[cfg(feature = "fleet")]
mod fleet_e2e;
#[cfg(feature = "fleet")]
mod fleet_faults;
#[cfg(feature = "fleet")]
mod fleet_later;
#[cfg(all(feature = "fleet", target_os = "linux"))]
mod fleet_lost_output;
#[cfg(feature = "fleet")]
mod fleet_names;
#[cfg(feature = "fleet")]
mod fleet_permissions;
#[cfg(feature = "fleet")]
mod fleet_send;
#[cfg(feature = "fleet")]
mod fleet_views;
mod fragments;
mod front;
mod golden;
mod golden_cover;
#[cfg(feature = "fleet")]
mod golden_fleet;
mod golden_house;
mod golden_live;
mod golden_page;
mod golden_relay;
mod golden_stored;
mod golden_text;
mod history;
mod history_e2e;
mod history_epochs;
mod history_faults;
mod history_stream;
mod history_tools;
mod hub;
mod hub_clients;
mod hub_down;
mod hub_e2e;
mod hub_handover;
mod hub_homes;
mod hub_kills;
mod hub_limits;
mod hub_shown;
mod hub_sockets;
mod hub_threads;
mod hub_tools;
mod keeping;
mod key_forms;
mod kills;
#[cfg(target_os = "linux")]
mod lost_output;
mod notify;
mod old_home;
mod old_relay;
mod oracles;
mod packages;
mod pictures;
mod request_tools;
mod requests;
mod requests_calls;
mod requests_e2e;
mod requests_faults;
mod requests_kills;
mod requests_kinds_e2e;
mod reviews;
mod reviews_e2e;
mod rot;
mod rules;
mod rules_e2e;
mod rules_past;
mod rules_shells;
mod sandbox;
mod search;
mod send_wait;
mod serve;
mod start;
mod support;
mod surroundings;
mod tapes;
mod tapes_listen;
mod tidy;
mod tools;
mod transcript_export;
mod tui;
mod usage;
mod web;
mod web_answers;
mod web_browser;
mod web_qr;
mod websocket;
mod websocket_recordings;
mod wrap;
mod wrap_hub;
