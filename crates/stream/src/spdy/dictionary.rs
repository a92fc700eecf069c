//! The preset dictionary of SPDY/3: header names and values that both sides know before the first byte.
//!
//! It is part of the wire format. zlib names it by its Adler-32, `e3c6a7c2`.

/// Words that stand in the dictionary with their length in front, four bytes, big endian.
const WORDS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// What follows the words, without lengths.
const TAIL: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Au",
    "thoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidd",
    "en404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr Ma",
    "y Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,imag",
    "e/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicpri",
    "vatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

/// The dictionary, byte for byte.
pub(crate) fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS {
        // No word is longer than a byte can say.
        bytes.extend_from_slice(&[0, 0, 0, word.len() as u8]);
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}
