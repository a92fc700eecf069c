//! A user, from a client certificate. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

/// A user, as the API server knows users.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name.
    pub username: String,
    /// The ID.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else the API server knows, such as the pod of a service account's token.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The group of all users that are known.
const AUTHENTICATED: &str = "system:authenticated";

/// Why a certificate of the right authority stands for no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// It cannot be read.
    #[error("the client certificate cannot be read")]
    Unreadable,
    /// It is not for clients.
    #[error("the client certificate is not for clients: its extended key usage does not have clientAuth")]
    NotForClients,
    /// It names no user.
    #[error("the client certificate has no common name, or several")]
    NoName,
}

// === impl User ===

impl User {
    /// The user that a certificate names: its common name, in the groups of its organizations. The chain was verified before.
    pub fn of_certificate(der: &[u8]) -> Result<Self, BadCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| BadCertificate::Unreadable)?;
        let usage = certificate.extended_key_usage().map_err(|_| BadCertificate::Unreadable)?;
        // rustls lets certificates pass that have no such extension at all.
        if !usage.is_some_and(|usage| usage.value.client_auth) {
            return Err(BadCertificate::NotForClients);
        }
        let subject = certificate.subject();
        let names = texts(subject.iter_common_name())?;
        let [name] = names.as_slice() else { return Err(BadCertificate::NoName) };
        if name.is_empty() {
            return Err(BadCertificate::NoName);
        }
        let groups = texts(X509Name::iter_organization(subject))?;
        Ok(Self { username: name.clone(), groups, ..Self::default() }.authenticated())
    }

    /// The user, in the group that all known users are in.
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

fn texts<'a>(
    attributes: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>,
) -> Result<Vec<String>, BadCertificate> {
    attributes.map(|found| found.as_str().map(str::to_owned).map_err(|_| BadCertificate::Unreadable)).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)], usages: &[ExtendedKeyUsagePurpose]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.extended_key_usages = usages.to_vec();
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().to_vec()
    }

    /// CLU-38
    #[test]
    fn a_certificate_names_a_user_and_its_groups() {
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let named = [(DnType::CommonName, "jane"), (DnType::OrganizationName, "ops")];
        let user = User::of_certificate(&certificate(&named, &both)).expect("a user");
        assert_eq!((user.username.as_str(), user.groups), ("jane", vec!["ops".to_owned(), AUTHENTICATED.to_owned()]));
        let refused = |names: &[(DnType, &str)], usages: &[ExtendedKeyUsagePurpose]| {
            User::of_certificate(&certificate(names, usages)).expect_err("no user")
        };
        assert_eq!(refused(&named, &both[..1]), BadCertificate::NotForClients);
        assert_eq!(refused(&named, &[]), BadCertificate::NotForClients);
        assert_eq!(refused(&named[1..], &both), BadCertificate::NoName);
        assert_eq!(refused(&[(DnType::CommonName, "")], &both), BadCertificate::NoName);
        assert_eq!(User::of_certificate(b"nonsense"), Err(BadCertificate::Unreadable));
    }
}
