//go:build tools

// Package tools names what of etcd is built, so that go.sum knows all it needs.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
