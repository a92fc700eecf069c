//! TLS without verification: a probe asks whether a target answers, not for its identity.

use std::{
    io,
    net::Ipv4Addr,
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::capped::Capped;

/// The two configurations, each built at its first use.
#[derive(Debug, Default)]
pub(crate) struct Tls {
    http: OnceLock<Arc<ClientConfig>>,
    grpc: OnceLock<Arc<ClientConfig>>,
}

/// The protocol to speak over the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// HTTP/1.1, or HTTP/2 with servers that speak nothing else.
    Http,
    /// HTTP/2.
    Grpc,
}

/// Accepts every certificate and every signature.
#[derive(Debug)]
struct AnyCertificate;

// === impl Tls ===

impl Tls {
    /// Performs the handshake. A host name is sent as SNI, an address is not.
    pub(crate) async fn connect(&self, purpose: Purpose, host: &str, io: Capped) -> io::Result<TlsStream<Capped>> {
        // A name that is not valid in SNI is treated like an address. The address is arbitrary, because it is not sent.
        let name = ServerName::try_from(host.to_owned())
            .unwrap_or_else(|_| ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()));
        TlsConnector::from(self.config(purpose)?).connect(name, io).await
    }

    fn config(&self, purpose: Purpose) -> io::Result<Arc<ClientConfig>> {
        let (slot, protocols) = match purpose {
            Purpose::Http => (&self.http, vec![b"http/1.1".to_vec(), b"h2".to_vec()]),
            Purpose::Grpc => (&self.grpc, vec![b"h2".to_vec()]),
        };
        if let Some(config) = slot.get() {
            return Ok(Arc::clone(config));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        config.alpn_protocols = protocols;
        // Every attempt makes a full handshake; no session of thousands of targets is stored.
        config.resumption = Resumption::disabled();
        Ok(Arc::clone(slot.get_or_init(|| Arc::new(config))))
    }
}

// === impl AnyCertificate ===

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        use SignatureScheme::*;
        vec![
            ECDSA_NISTP256_SHA256,
            ECDSA_NISTP384_SHA384,
            ECDSA_NISTP521_SHA512,
            ED25519,
            ED448,
            RSA_PSS_SHA256,
            RSA_PSS_SHA384,
            RSA_PSS_SHA512,
            RSA_PKCS1_SHA256,
            RSA_PKCS1_SHA384,
            RSA_PKCS1_SHA512,
            ECDSA_SHA1_Legacy,
            RSA_PKCS1_SHA1,
        ]
    }
}
