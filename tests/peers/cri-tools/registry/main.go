// Registry serves stand-ins for the images that the suite wants, made of busybox and of one small program of ours. They are
// built in memory, and served to every client under any name of a registry.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
)

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"

	passwd = "root:x:0:0:root:/:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\ndefault-user:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
	group  = "root:x:0:\nwww-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\nnobody:x:65534:\n"
)

// image is what sets one image apart from the others.
type image struct {
	names      []string
	user       string
	entrypoint []string
	cmd        []string
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type descriptor struct {
	MediaType string    `json:"mediaType"`
	Digest    string    `json:"digest"`
	Size      int       `json:"size"`
	Platform  *platform `json:"platform,omitempty"`
}

// content is something that can be asked for, by its digest or a tag.
type content struct {
	mediaType string
	digest    string
	bytes     []byte
}

// store has blobs by their digests, and manifests by "repository:tag" and digest.
type store struct {
	blobs     map[string]content
	manifests map[string]content
}

func images() []image {
	shell := []string{"sh"}
	suite := func(name string) string { return "k8s-staging-cri-tools/" + name }
	e2e := func(name string) string { return "e2e-test-images/" + name }
	all := []image{
		{names: []string{e2e("busybox:1.29-2")}, cmd: shell},
		{names: []string{e2e("nginx:1.14-2")}, entrypoint: []string{"nginx"}},
		{names: []string{e2e("httpd:2.4.39-4")}, entrypoint: []string{"httpd"}},
		{names: []string{e2e("nonewprivs:1.3")}, entrypoint: []string{"/bin/nnp"}},
		{names: []string{suite("hostnet-nginx-" + runtime.GOARCH + ":latest")}, entrypoint: []string{"nginx", "12003"}},
		{names: []string{"pause:3.9"}, entrypoint: []string{"pause"}},
		{names: []string{suite("test-image-tags:1"), suite("test-image-tags:2"), suite("test-image-tags:3")}, cmd: shell},
		{names: []string{suite("test-image-user-uid:latest")}, user: "1002", cmd: shell},
		{names: []string{suite("test-image-user-username:latest")}, user: "www-data", cmd: shell},
		{names: []string{suite("test-image-user-uid-group:latest")}, user: "1003:users", cmd: shell},
		{names: []string{suite("test-image-user-username-group:latest")}, user: "www-data:www-data", cmd: shell},
		{names: []string{suite("test-image-predefined-group:latest")}, user: "1000", cmd: shell},
	}
	for _, name := range []string{
		"test-image-latest:latest", "test-image-tag:test", "test-image-tag:all", "test-image-1:latest", "test-image-2:latest",
		"test-image-3:latest",
	} {
		all = append(all, image{names: []string{suite(name)}, cmd: shell})
	}
	return all
}

func main() {
	busybox := flag.String("busybox", "/bin/busybox", "a busybox that needs no libraries")
	standin := flag.String("standin", "", "the program that stands in for what busybox lacks")
	listen := flag.String("listen", "127.0.0.1:5000", "address to serve on")
	flag.Parse()
	store, err := build(*busybox, *standin)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, store))
}

// build makes all images. They share a layer of files, and each has one of its own, so that all differ.
func build(busybox, standin string) (*store, error) {
	files, err := files(busybox, standin)
	if err != nil {
		return nil, err
	}
	store := &store{blobs: map[string]content{}, manifests: map[string]content{}}
	common, commonID, err := store.layer(files)
	if err != nil {
		return nil, err
	}
	for _, image := range images() {
		note := file{tar.Header{Name: "etc/image", Mode: 0o644, Typeflag: tar.TypeReg}, []byte(image.names[0] + "\n")}
		own, ownID, err := store.layer([]file{note})
		if err != nil {
			return nil, err
		}
		config := map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Env": []string{"PATH=/bin"}, "User": image.user, "Entrypoint": image.entrypoint, "Cmd": image.cmd},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{commonID, ownID}},
		}
		configured := store.blob(configType, encode(config))
		manifest := newContent(manifestType, encode(map[string]any{
			"schemaVersion": 2, "mediaType": manifestType, "config": configured, "layers": []descriptor{common, own},
		}))
		entry := describe(manifest)
		entry.Platform = &platform{Architecture: runtime.GOARCH, OS: "linux"}
		index := newContent(indexType, encode(map[string]any{
			"schemaVersion": 2, "mediaType": indexType, "manifests": []descriptor{entry},
		}))
		store.manifests[manifest.digest], store.manifests[index.digest] = manifest, index
		for _, name := range image.names {
			store.manifests[name] = index
		}
	}
	return store, nil
}

// file is a header of an archive and what follows it.
type file struct {
	header tar.Header
	bytes  []byte
}

func files(busybox, standin string) ([]file, error) {
	program := func(source, target string, mode int64) (file, error) {
		bytes, err := os.ReadFile(source)
		return file{tar.Header{Name: target, Mode: mode, Typeflag: tar.TypeReg}, bytes}, err
	}
	var all []file
	for _, name := range []string{"bin", "dev", "etc", "proc", "sys", "tmp", "var", "var/run", "var/www"} {
		mode := int64(0o755)
		if name == "tmp" {
			mode = 0o1777
		}
		all = append(all, file{header: tar.Header{Name: name + "/", Mode: mode, Typeflag: tar.TypeDir}})
	}
	for name, text := range map[string]string{"etc/passwd": passwd, "etc/group": group} {
		all = append(all, file{tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, []byte(text)})
	}
	shell, err := program(busybox, "bin/busybox", 0o755)
	if err != nil {
		return nil, err
	}
	ours, err := program(standin, "bin/standin", 0o755)
	if err != nil {
		return nil, err
	}
	// Its caller becomes root, unless that is forbidden.
	escalating, err := program(standin, "bin/nnp", 0o4755)
	if err != nil {
		return nil, err
	}
	// Debian's shell would run its own ls and never look for one, and the suite hides /bin/ls to see what the shell says.
	list := shell
	list.header.Name = "bin/ls"
	shell.bytes = bytes.Replace(shell.bytes, []byte("\x00ls\x00ls"), []byte("\x00lr\x00ls"), 1)
	all = append(all, shell, list, ours, escalating)
	links := map[string]string{"nginx": "standin", "httpd": "standin", "pgrep": "standin", "ipcs": "standin", "pause": "standin"}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, err
	}
	for _, applet := range strings.Fields(string(applets)) {
		if _, taken := links[applet]; !taken && applet != "busybox" && applet != "ls" {
			links[applet] = "busybox"
		}
	}
	for name, target := range links {
		all = append(all, file{header: tar.Header{Name: path.Join("bin", name), Linkname: target, Mode: 0o777, Typeflag: tar.TypeSymlink}})
	}
	return all, nil
}

// layer makes a compressed archive. The second answer is the digest of what is in it.
func (s *store) layer(files []file) (descriptor, string, error) {
	var plain, packed bytes.Buffer
	archive := tar.NewWriter(&plain)
	for _, file := range files {
		file.header.Size = int64(len(file.bytes))
		if err := archive.WriteHeader(&file.header); err != nil {
			return descriptor{}, "", err
		}
		if _, err := archive.Write(file.bytes); err != nil {
			return descriptor{}, "", err
		}
	}
	if err := archive.Close(); err != nil {
		return descriptor{}, "", err
	}
	packer, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return descriptor{}, "", err
	}
	if _, err := packer.Write(plain.Bytes()); err != nil {
		return descriptor{}, "", err
	}
	if err := packer.Close(); err != nil {
		return descriptor{}, "", err
	}
	return s.blob(layerType, packed.Bytes()), newContent("", plain.Bytes()).digest, nil
}

func (s *store) blob(mediaType string, bytes []byte) descriptor {
	content := newContent(mediaType, bytes)
	s.blobs[content.digest] = content
	return describe(content)
}

// ServeHTTP answers what a pull asks.
func (s *store) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	found, ok := s.find(strings.TrimPrefix(request.URL.Path, "/v2/"))
	switch {
	case request.URL.Path == "/v2/":
	case request.Method != http.MethodGet && request.Method != http.MethodHead:
		http.Error(answer, "read-only", http.StatusMethodNotAllowed)
	case !ok:
		answer.Header().Set("Content-Type", "application/json")
		answer.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(answer, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"nothing is at %s"}]}`, request.URL.Path)
	default:
		answer.Header().Set("Content-Type", found.mediaType)
		answer.Header().Set("Docker-Content-Digest", found.digest)
		answer.Header().Set("Content-Length", fmt.Sprint(len(found.bytes)))
		if request.Method == http.MethodGet {
			_, _ = answer.Write(found.bytes)
		}
	}
}

// find takes "REPOSITORY/manifests/TAG-OR-DIGEST" or "REPOSITORY/blobs/DIGEST".
func (s *store) find(where string) (content, bool) {
	if repository, reference, ok := strings.Cut(where, "/manifests/"); ok {
		if !strings.HasPrefix(reference, "sha256:") {
			reference = repository + ":" + reference
		}
		found, ok := s.manifests[reference]
		return found, ok
	}
	_, digest, _ := strings.Cut(where, "/blobs/")
	found, ok := s.blobs[digest]
	return found, ok
}

func newContent(mediaType string, bytes []byte) content {
	return content{mediaType, fmt.Sprintf("sha256:%x", sha256.Sum256(bytes)), bytes}
}

func describe(content content) descriptor {
	return descriptor{MediaType: content.mediaType, Digest: content.digest, Size: len(content.bytes)}
}

// encode makes JSON of what always can be JSON.
func encode(value any) []byte {
	bytes, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return bytes
}
