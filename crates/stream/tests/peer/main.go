// Talks to a keelet streaming server the way kubectl and crictl do, with client-go, and says what differs from what it
// expects. One scenario per call: peer SCENARIO TRANSPORT URL.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: peer SCENARIO TRANSPORT URL")
		os.Exit(2)
	}
	scenario, transport, target := os.Args[1], os.Args[2], os.Args[3]
	scenarios := map[string]func(string, string) error{
		"echo":        echo,
		"exit":        exitCode,
		"unread":      unread,
		"half-closed": halfClosed,
		"stderr":      stderrApart,
		"resize":      resize,
		"failure":     failure,
		"flood":       flood,
		"forward":     forward,
		"refused":     refused,
		"given-up":    givenUp,
	}
	run, known := scenarios[scenario]
	if !known {
		fmt.Fprintf(os.Stderr, "no scenario %q\n", scenario)
		os.Exit(2)
	}
	ended := make(chan error, 1)
	go func() { ended <- run(transport, target) }()
	select {
	case err := <-ended:
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s over %s: %v\n", scenario, transport, err)
			os.Exit(1)
		}
	case <-time.After(30 * time.Second):
		fmt.Fprintf(os.Stderr, "%s over %s: did not end within 30 s\n", scenario, transport)
		os.Exit(1)
	}
}

func stream(transport, target string, options remotecommand.StreamOptions) error {
	parsed, err := url.Parse(target)
	if err != nil {
		return err
	}
	var executor remotecommand.Executor
	switch transport {
	case "spdy":
		executor, err = remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", parsed)
	case "spdy-v3", "spdy-v2":
		version := strings.TrimPrefix(transport, "spdy-") + ".channel.k8s.io"
		wrapper, upgrader, failed := spdy.RoundTripperFor(&rest.Config{})
		if failed != nil {
			return failed
		}
		executor, err = remotecommand.NewSPDYExecutorForProtocols(wrapper, upgrader, "POST", parsed, version)
	case "websocket":
		executor, err = remotecommand.NewWebSocketExecutor(&rest.Config{}, "GET", target)
	case "websocket-v4":
		executor, err = remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, "GET", target, "v4.channel.k8s.io")
	default:
		return fmt.Errorf("no transport %q", transport)
	}
	if err != nil {
		return err
	}
	return executor.StreamWithContext(context.Background(), options)
}

func echo(transport, target string) error {
	sent := make([]byte, 10_000_000)
	rand.New(rand.NewSource(1)).Read(sent)
	var stdout, stderr bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: bytes.NewReader(sent), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return err
	}
	if sha256.Sum256(sent) != sha256.Sum256(stdout.Bytes()) {
		return fmt.Errorf("%d bytes were sent, %d came back, or not the same ones", len(sent), stdout.Len())
	}
	return nil
}

func exitCode(transport, target string) error {
	var stdout, stderr bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	if strings.HasPrefix(transport, "spdy-") {
		if err == nil || !strings.Contains(err.Error(), "exit code: 7") {
			return fmt.Errorf("expected words about exit code 7, got %v", err)
		}
		return nil
	}
	var code exec.CodeExitError
	if !errors.As(err, &code) || code.Code != 7 {
		return fmt.Errorf("expected exit code 7, got %v", err)
	}
	return nil
}

// A command that ends without reading what is on its stdin.
func unread(transport, target string) error {
	stdin := io.LimitReader(zeros{}, 50_000_000)
	var stdout, stderr bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	var code exec.CodeExitError
	if !errors.As(err, &code) || code.Code != 7 {
		return fmt.Errorf("expected exit code 7, got %v", err)
	}
	return nil
}

type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}

// A command that ends because its stdin did, while the connection stays.
func halfClosed(transport, target string) error {
	var stdout, stderr bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: strings.NewReader("the last line"), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return err
	}
	return same(stdout.String(), "the last line")
}

func stderrApart(transport, target string) error {
	var stdout, stderr bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return err
	}
	return errors.Join(same(stdout.String(), "for stdout"), same(stderr.String(), "for stderr"))
}

func failure(transport, target string) error {
	var stdout, stderr bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	if err == nil || !strings.Contains(err.Error(), "nonsense: no such file") {
		return fmt.Errorf("expected words about a missing file, got %v", err)
	}
	return nil
}

func flood(transport, target string) error {
	var stdout, stderr bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return err
	}
	return same(fmt.Sprint(stdout.Len()), "20000000")
}

type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, more := <-s
	if !more {
		return nil
	}
	return &size
}

func resize(transport, target string) error {
	queue := make(sizes, 2)
	queue <- remotecommand.TerminalSize{Width: 80, Height: 24}
	queue <- remotecommand.TerminalSize{Width: 132, Height: 50}
	// A terminal's stdin stays open.
	stdin, keep := io.Pipe()
	defer keep.Close()
	var stdout bytes.Buffer
	err := stream(transport, target, remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Tty: true, TerminalSizeQueue: queue})
	if err != nil {
		return err
	}
	if !strings.HasSuffix(stdout.String(), "132x50\n") {
		return fmt.Errorf("the last size did not arrive: %q", stdout.String())
	}
	return nil
}

func same(found, expected string) error {
	if found != expected {
		return fmt.Errorf("expected %q, got %q", expected, found)
	}
	return nil
}

func dialer(transport, target string) (httpstream.Dialer, error) {
	parsed, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	switch transport {
	case "spdy":
		wrapper, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
		if err != nil {
			return nil, err
		}
		return spdy.NewDialer(upgrader, &http.Client{Transport: wrapper}, "POST", parsed), nil
	case "websocket":
		return portforward.NewSPDYOverWebsocketDialer(parsed, &rest.Config{})
	}
	return nil, fmt.Errorf("no transport %q", transport)
}

// Starts to forward to ports and gives the addresses to connect to.
func listen(transport, target string, remote ...string) (addresses []string, stop func() error, err error) {
	dialer, err := dialer(transport, target)
	if err != nil {
		return nil, nil, err
	}
	var wanted []string
	for _, port := range remote {
		wanted = append(wanted, "0:"+port)
	}
	stopped, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, wanted, stopped, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, nil, err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return nil, nil, err
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, nil, err
	}
	stop = func() error {
		close(stopped)
		return <-ended
	}
	for _, port := range ports {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port.Local))
	}
	return addresses, stop, nil
}

// Many connections at once, each half closed when all was sent.
func forward(transport, target string) error {
	addresses, stop, err := listen(transport, target, "7")
	if err != nil {
		return err
	}
	const connections = 16
	var waiting sync.WaitGroup
	failed := make(chan error, connections)
	for number := range connections {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			failed <- echoOnce(addresses[0], int64(number))
		}()
	}
	waiting.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return stop()
}

func echoOnce(address string, seed int64) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make([]byte, 500_000)
	rand.New(rand.NewSource(seed)).Read(sent)
	go func() {
		if _, err := conn.Write(sent); err == nil {
			conn.(*net.TCPConn).CloseWrite()
		}
	}()
	received, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	expected := append(sent, "500000 bytes"...)
	if !bytes.Equal(received, expected) {
		return fmt.Errorf("connection %d: %d bytes came back instead of %d, or not the same ones", seed, len(received), len(expected))
	}
	return nil
}

// A port without a listener: client-go reads why and closes the connection.
func refused(transport, target string) error {
	addresses, _, err := listen(transport, target, "9")
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", addresses[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	received, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	return same(string(received), "")
}

// A connection that is closed in the middle of an endless answer, before another one.
func givenUp(transport, target string) error {
	addresses, stop, err := listen(transport, target, "19", "7")
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", addresses[0])
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1_000_000)); err != nil {
		return err
	}
	conn.Close()
	for number := range 5 {
		if err := echoOnce(addresses[1], int64(number)); err != nil {
			return err
		}
	}
	return stop()
}
