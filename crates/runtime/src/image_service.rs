//! The calls of CRI's image service.

use keelet_cri::v1::{self, image_service_server::ImageService};
use keelet_image::{Auth, Image, ImageContent, RegistryProblem};
use tonic::{Request, Response, Status};

use crate::{
    engine::{Engine, Parts, now},
    sandbox::internal,
    settings::RootfsImages,
    stats::mountpoint,
};

type Answered<T> = Result<Response<T>, Status>;

// === impl Engine ===

#[tonic::async_trait]
impl ImageService for Engine {
    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> Answered<v1::ListImagesResponse> {
        let wanted = request.into_inner().filter.and_then(|filter| filter.image).map(|image| image.image);
        let wanted = wanted.filter(|name| !name.is_empty());
        let found = self.blocking(move |parts| {
            let list = |error: keelet_image::Error| internal("images", &error);
            let mut images = match wanted {
                Some(name) => parts.find_image(&name)?.into_iter().collect(),
                None => parts.images.list().map_err(list)?,
            };
            // An agent that collects images does not know what other runtimes with the same store run.
            let others = parts.images.images_of_others().map_err(list)?;
            images.iter_mut().for_each(|image| image.pinned |= others.contains(&image.id));
            Ok::<_, Status>(images)
        });
        let images = found.await?;
        Ok(Response::new(v1::ListImagesResponse { images: images.iter().map(described).collect() }))
    }

    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> Answered<v1::ImageStatusResponse> {
        let request = request.into_inner();
        let name = request.image.unwrap_or_default().image;
        let found = self.blocking(move |parts| parts.find_image(&name)).await?;
        let mut info = v1::ImageStatusResponse::default().info;
        if let Some(image) = found.as_ref().filter(|_| request.verbose) {
            let config = serde_json::to_string(&image.config).unwrap_or_default();
            info.insert("info".to_owned(), config);
        }
        Ok(Response::new(v1::ImageStatusResponse { image: found.as_ref().map(described), info }))
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answered<v1::PullImageResponse> {
        let v1::PullImageRequest { image, auth, .. } = request.into_inner();
        let name = image.unwrap_or_default().image;
        let image_ref = self.pull(&name, auth).await?;
        Ok(Response::new(v1::PullImageResponse { image_ref }))
    }

    async fn remove_image(&self, request: Request<v1::RemoveImageRequest>) -> Answered<v1::RemoveImageResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        self.blocking(move |parts| parts.images.remove(&name)).await.map_err(|error| internal("images", &error))?;
        Ok(Response::new(v1::RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<v1::ImageFsInfoRequest>) -> Answered<v1::ImageFsInfoResponse> {
        let used = self.blocking(|parts| parts.images.usage()).await.map_err(|error| internal("images", &error))?;
        let usage = v1::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: mountpoint(&self.parts.settings.images) }),
            used_bytes: Some(v1::UInt64Value { value: used.bytes }),
            inodes_used: Some(v1::UInt64Value { value: used.inodes }),
        };
        Ok(Response::new(v1::ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}

impl Parts {
    /// The image that a caller means. All ways to an image go through here: a directory of the node is one for callers that may
    /// name it.
    pub(crate) fn find_image(&self, name: &str) -> Result<Option<Image>, Status> {
        let found = self.images.find(name).map_err(|error| internal("images", &error))?;
        match (found.as_ref().map(|image| &image.source), self.settings.rootfs_images) {
            (Some(ImageContent::Directory(_)), RootfsImages::Refused) => Err(Status::permission_denied(format!(
                "the image {name:?} is a directory of the node, which this runtime gives to no caller; \
                 keelet runtime serve --allow-rootfs-images does"
            ))),
            _ => Ok(found),
        }
    }
}

impl Engine {
    /// Pulls an image; what to find it by afterwards. A directory of the node that stands for an image is there already.
    async fn pull(&self, name: &str, auth: Option<v1::AuthConfig>) -> Result<String, Status> {
        if name.starts_with("rootfs:") {
            let wanted = name.to_owned();
            let found = self.blocking(move |parts| parts.find_image(&wanted)).await?;
            let image = found.ok_or_else(|| Status::not_found(format!("{name:?}: there is no such directory")))?;
            return Ok(image.id);
        }
        let auth = auth.map(credentials).transpose()?.flatten();
        let options = &self.parts.settings.pull;
        let entry = self.parts.pulls.begin(name);
        let image =
            self.parts.images.pull(name, auth, options, |progress| entry.note(progress)).await.map_err(|error| {
                match &error {
                    keelet_image::Error::Registry { problem, .. } => match problem {
                        RegistryProblem::NotFound => Status::not_found(error.to_string()),
                        RegistryProblem::Unauthorised => Status::permission_denied(error.to_string()),
                        // Not Unavailable: that would be the runtime itself.
                        _ => Status::unknown(error.to_string()),
                    },
                    _ => Status::unknown(error.to_string()),
                }
            })?;
        Ok(image.id)
    }
}

/// Credentials as CRI has them; none if it says nothing.
fn credentials(auth: v1::AuthConfig) -> Result<Option<Auth>, Status> {
    let v1::AuthConfig { username, password, auth, identity_token, registry_token, .. } = auth;
    if !registry_token.is_empty() {
        return Ok(Some(Auth::Token(registry_token)));
    }
    if !identity_token.is_empty() {
        return Err(Status::unimplemented("identity tokens are not supported; give a name and a password"));
    }
    if !auth.is_empty() {
        return Auth::from_base64(&auth).map(Some).map_err(|error| Status::invalid_argument(error.to_string()));
    }
    Ok((!username.is_empty()).then_some(Auth::Basic { username, password }))
}

/// An image in CRI's words.
fn described(image: &Image) -> v1::Image {
    let user = image.config.user.split(':').next().unwrap_or_default();
    let uid = user.parse::<i64>().ok();
    v1::Image {
        id: image.id.clone(),
        repo_tags: image.tags.clone(),
        repo_digests: image.digests.clone(),
        size: image.size,
        uid: uid.map(|value| v1::Int64Value { value }),
        username: if uid.is_none() { user.to_owned() } else { String::new() },
        spec: None,
        pinned: image.pinned,
    }
}
