//! DNS for `delivery`: hickory-resolver driven, answers turned into facts.
