//! what lies outside: disk, clock, chance; the real ones and the simulated ones.
