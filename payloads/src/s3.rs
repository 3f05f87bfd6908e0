//! Stores that speak S3.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ClientOptions, RetryConfig};

use crate::store::Store;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest try of one request.
const REQUEST: Duration = Duration::from_secs(20);

/// A bucket, and how to reach it.
#[derive(Clone, Default)]
pub struct S3 {
    /// The bucket.
    pub bucket: String,
    /// Below what in it; may be empty.
    pub prefix: String,
    /// The service's URL, for services that are not AWS; `http://` only inside a network of your own. Empty: AWS.
    pub endpoint: String,
    /// The region.
    pub region: String,
    /// Key and secret; empty: from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, a web identity
    /// token, or the machine's role).
    pub access_key_id: String,
    /// See there.
    pub secret_access_key: String,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3").field("bucket", &self.bucket).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Store {
    /// A bucket. Nothing is asked of it yet.
    ///
    /// # Errors
    /// What is wrong with the description; it holds no secret.
    pub fn s3(name: impl Into<String>, s3: &S3) -> Result<Self, String> {
        // The first one in a process stays; all of ours are the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let prefix = Path::parse(&s3.prefix).map_err(|e| e.to_string())?;
        let client = ClientOptions::new()
            .with_connect_timeout(CONNECT)
            .with_timeout(REQUEST)
            .with_allow_http(s3.endpoint.starts_with("http://"));
        let retry = RetryConfig { max_retries: 2, retry_timeout: REQUEST, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&s3.bucket)
            .with_region(&s3.region)
            .with_client_options(client)
            .with_retry(retry);
        if !s3.endpoint.is_empty() {
            builder = builder.with_endpoint(&s3.endpoint);
        }
        if !s3.access_key_id.is_empty() {
            builder = builder.with_access_key_id(&s3.access_key_id).with_secret_access_key(&s3.secret_access_key);
        }
        let objects = builder.build().map_err(|e| e.to_string())?;
        Ok(Self::of(name, Arc::new(objects), prefix))
    }
}
