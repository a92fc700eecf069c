// Standin takes the place of programs that the suite's images have and busybox does not. Which one it is says the name
// that it is called by.
package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	pidFile = "/var/run/nginx.pid"
	// The real nginx calls its first process so, and the suite looks for it.
	title = "nginx: master process nginx"
)

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); {
	case os.Args[0] == title:
		err = serve("nginx", port("80"))
	case name == "nginx":
		// By this path, because the kernel names a process after it.
		err = syscall.Exec("/bin/nginx", append([]string{title}, os.Args[1:]...), os.Environ())
	case name == "httpd":
		err = serve("httpd", port("80"))
	case name == "nnp":
		fmt.Printf("Effective uid: %d\n", os.Geteuid())
	case name == "pgrep":
		err = pgrep(os.Args[1:])
	case name == "ipcs":
		err = ipcs()
	case name == "pause":
		select {}
	default:
		err = fmt.Errorf("no program is called %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// port is the first argument, or the usual one.
func port(usual string) string {
	if len(os.Args) > 1 {
		return os.Args[1]
	}
	return usual
}

// serve answers every request with the same page.
func serve(name, port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	// Not every container may write there.
	_ = os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644)
	fmt.Printf("%s serves port %s\n", name, port)
	page := "<title>Welcome to nginx!</title>\n"
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			if _, err := connection.Read(make([]byte, 4096)); err != nil {
				return
			}
			fmt.Fprintf(connection, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(page), page)
		}()
	}
}

// pgrep prints the numbers of processes with a name.
func pgrep(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: pgrep NAME")
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	found := false
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(name), arguments[0]) {
			continue
		}
		found = true
		fmt.Println(filepath.Base(filepath.Dir(path)))
	}
	if !found {
		os.Exit(1)
	}
	return nil
}

// ipcs prints the segments of shared memory that this namespace has.
func ipcs() error {
	table, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return err
	}
	fmt.Println("key shmid owner")
	for _, line := range strings.Split(strings.TrimSpace(string(table)), "\n")[1:] {
		fields := strings.Fields(line)
		fmt.Println(fields[0], fields[1], fields[7])
	}
	return nil
}
