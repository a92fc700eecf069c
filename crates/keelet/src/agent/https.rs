//! The HTTPS server of a node of a cluster: flags, then the configuration file, then the kubelet's defaults.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use clap::Args as ClapArgs;
use keelet_agent::{
    config::{HttpsConfig, NodeConfig, TlsVersion},
    node::Facts,
};
use keelet_assembly::HttpsSettings;
use keelet_cli::{number, paths::absolute};
use keelet_https::{MinVersion, ReviewSettings, ServingCertificate, TlsSettings};
use keelet_serve::{Debugging, KubeletSettings};
use serde_json::{Value, json};

/// The kubelet's.
const PORT: u16 = 10250;

/// The flags of the HTTPS server.
#[derive(Debug, ClapArgs)]
#[group(skip)]
pub(super) struct Args {
    /// Address that the HTTPS server for kubectl logs, exec and others listens on [default: 0.0.0.0]
    #[arg(long, value_name = "IP", requires = "kubeconfig")]
    address: Option<IpAddr>,
    /// Port of the HTTPS server; 0 disables it [default: 10250]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true, value_parser = number::parse::<u16>, requires = "kubeconfig")]
    port: Option<u16>,
    /// Certificate of the HTTPS server, PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file", requires = "kubeconfig")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Serve with a self-signed certificate: clients cannot tell this node from another server
    #[arg(long, conflicts_with = "tls_cert_file", requires = "kubeconfig")]
    self_signed_serving_certificate: bool,
    /// Certificates of the authority whose client certificates are accepted, PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    client_ca_file: Option<PathBuf>,
}

// === impl Args ===

impl Args {
    /// What the server is started with; none if there is to be none.
    pub(super) fn settings(&self, config: &NodeConfig, facts: &Facts) -> Result<Option<HttpsSettings>> {
        let file = &config.https;
        let port = self.port.or(file.port).unwrap_or(PORT);
        if port == 0 || file.disabled {
            return Ok(None);
        }
        if file.anonymous {
            bail!(
                "authentication.anonymous.enabled: true is not supported by keelet: clients need a certificate or a token"
            );
        }
        if let Some(mode) = &file.authorization_mode {
            bail!("authorization.mode: {mode:?} is not supported by keelet; supported: \"Webhook\"");
        }
        let Some(serving) = self.certificate(file, facts)? else {
            tracing::warn!(
                "no HTTPS server: kubectl logs, exec, attach, port-forward and top fail on this node; give --tls-cert-file and \
                 --tls-private-key-file, or --self-signed-serving-certificate"
            );
            return Ok(None);
        };
        let client_ca = self.client_ca_file.as_deref().or(file.client_ca.as_deref());
        let client_ca = client_ca.map(|path| absolute("--client-ca-file", path)).transpose()?;
        let usual = ReviewSettings::default();
        let reviews = ReviewSettings {
            tokens: file.tokens.unwrap_or(usual.tokens),
            token_lasts: file.token_lasts.unwrap_or(usual.token_lasts),
            allowed_lasts: file.allowed_lasts.unwrap_or(usual.allowed_lasts),
            denied_lasts: file.denied_lasts.unwrap_or(usual.denied_lasts),
        };
        let address = SocketAddr::new(self.address.or(file.address).unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
        let min_version = match file.min_version {
            Some(TlsVersion::Tls13) => MinVersion::Tls13,
            Some(TlsVersion::Tls12) | None => MinVersion::Tls12,
        };
        let tls = TlsSettings { serving, client_ca, min_version };
        let debugging = if file.debugging == Some(false) { Debugging::Refused } else { Debugging::Served };
        let configuration = configuration(config, address, &tls, &reviews, debugging);
        Ok(Some(HttpsSettings { address, tls, reviews, kubelet: KubeletSettings { debugging, configuration } }))
    }

    fn certificate(&self, file: &HttpsConfig, facts: &Facts) -> Result<Option<ServingCertificate>> {
        let pair = |certificate: &Path, key: &Path| {
            anyhow::Ok(ServingCertificate::Files {
                certificate: absolute("--tls-cert-file", certificate)?,
                key: absolute("--tls-private-key-file", key)?,
            })
        };
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            return pair(certificate, key).map(Some);
        }
        if self.self_signed_serving_certificate {
            let names = [Some(facts.for_pods.name.clone()), facts.for_pods.address.clone()];
            return Ok(Some(ServingCertificate::SelfSigned(names.into_iter().flatten().collect())));
        }
        match (&file.certificate, &file.private_key) {
            (Some(certificate), Some(key)) => pair(certificate, key).map(Some),
            _ => Ok(None),
        }
    }
}

/// What `/configz` shows: fields of a `KubeletConfiguration` with the values in effect.
fn configuration(
    config: &NodeConfig,
    address: SocketAddr,
    tls: &TlsSettings,
    reviews: &ReviewSettings,
    debugging: Debugging,
) -> Value {
    let (logs, images) = (&config.upkeep.logs, &config.upkeep.images);
    let seconds = |span: std::time::Duration| format!("{}s", span.as_secs());
    let mut shown = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address.ip(),
        "port": address.port(),
        "enableServer": true,
        "enableDebuggingHandlers": debugging == Debugging::Served,
        "tlsMinVersion": if tls.min_version == MinVersion::Tls13 { "VersionTLS13" } else { "VersionTLS12" },
        "authentication": {
            "x509": { "clientCAFile": tls.client_ca },
            "webhook": { "enabled": reviews.tokens, "cacheTTL": seconds(reviews.token_lasts) },
            "anonymous": { "enabled": false },
        },
        "authorization": {
            "mode": "Webhook",
            "webhook": {
                "cacheAuthorizedTTL": seconds(reviews.allowed_lasts),
                "cacheUnauthorizedTTL": seconds(reviews.denied_lasts),
            },
        },
        "clusterDNS": config.cluster_dns,
        "clusterDomain": config.cluster_domain,
        "featureGates": config.feature_gates,
        "containerLogMaxFiles": logs.max_files,
        "imageGCHighThresholdPercent": images.high_percent,
        "imageGCLowThresholdPercent": images.low_percent,
        "imageMinimumGCAge": seconds(images.minimum_age),
        "seccompDefault": config.seccomp_default,
    });
    if let ServingCertificate::Files { certificate, key } = &tls.serving {
        shown["tlsCertFile"] = json!(certificate);
        shown["tlsPrivateKeyFile"] = json!(key);
    }
    shown
}
