//! The text of a file of lines, plain or compressed by gzip or zstd.
//!
//! Must never decide what a line means.

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Returns all complete lines of a file. A last line without its line end was cut short and is left out.
pub fn complete(path: &Path) -> io::Result<String> {
    let mut file = BufReader::new(File::open(path)?);
    let mut text = String::new();
    match Form::of(file.fill_buf()?) {
        Form::Plain => file.read_to_string(&mut text)?,
        Form::Gzip => MultiGzDecoder::new(file).read_to_string(&mut text)?,
        Form::Zstd => {
            StreamingDecoder::new(file).map_err(io::Error::other)?.read_to_string(&mut text)?
        }
    };
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    Ok(text)
}

/// Refuses to append plain lines to a compressed file.
pub fn must_be_plain(file: &mut File) -> io::Result<()> {
    let mut first = Vec::new();
    file.take(ZSTD.len() as u64).read_to_end(&mut first)?;
    if Form::of(&first) != Form::Plain {
        let why = "is compressed: decompress it before more runs are added";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

/// How a file is written.
#[derive(PartialEq)]
enum Form {
    Plain,
    Gzip,
    Zstd,
}

/// The first bytes of every gzip member (RFC 1952 2.3.1) and of every zstd frame (RFC 8878 3.1.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Form {
    fn of(first_bytes: &[u8]) -> Form {
        match first_bytes {
            bytes if bytes.starts_with(&GZIP) => Form::Gzip,
            bytes if bytes.starts_with(&ZSTD) => Form::Zstd,
            _ => Form::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    const TEXT: &str = "one\ntwo\ncut sho";

    fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn compressed_lines_read_as_plain_ones_do_and_nothing_is_appended_to_them() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(TEXT.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = compress_to_vec(TEXT.as_bytes(), CompressionLevel::Fastest);
        for (bytes, plain) in [(TEXT.as_bytes(), true), (&gzip, false), (&zstd, false)] {
            let file = written(bytes);
            assert_eq!(complete(file.path()).unwrap(), "one\ntwo\n");
            let mut file = File::open(file.path()).unwrap();
            assert_eq!(must_be_plain(&mut file).is_ok(), plain);
        }
    }

    #[test]
    fn an_empty_file_has_no_lines() {
        assert_eq!(complete(written(b"").path()).unwrap(), "");
    }
}
