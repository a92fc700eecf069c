// Verdict reads the report of a run of the suite and holds it against the list of what is known to fail or to be skipped.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// spec is the part of an entry of the report that matters here.
type spec struct {
	LeafNodeType            string
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	Failure                 *struct{ Message string }
}

type report struct {
	SpecialSuiteFailureReasons []string
	SpecReports                []spec
}

// known has the names of specs, and what is expected of them: "fail" or "skip".
type known map[string]string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: verdict REPORT KNOWN")
		os.Exit(2)
	}
	report, err := readReport(os.Args[1])
	if err == nil {
		var known known
		if known, err = readKnown(os.Args[2]); err == nil {
			os.Exit(judge(report, known, os.Args[2]))
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// judge says what came unexpected, counts, and returns the status to exit with.
func judge(report report, known known, list string) int {
	passed, failed, skipped := 0, 0, 0
	var problems []string
	seen := map[string]bool{}
	for _, spec := range report.SpecReports {
		name := spec.name()
		expected := known[name]
		unexpected := func(what string) { problems = append(problems, fmt.Sprintf("%s: %s%s", what, name, spec.because())) }
		switch {
		case spec.LeafNodeType != "It" && spec.State == "passed":
			continue
		case spec.LeafNodeType != "It":
			unexpected("failed around the specs")
			continue
		case spec.State == "passed":
			passed++
			if expected == "fail" {
				unexpected("passes, but " + list + " says that it fails")
			}
		case spec.State == "skipped" || spec.State == "pending":
			skipped++
			// What was not chosen has no reason.
			if expected != "skip" && spec.because() != "" {
				unexpected("skipped, which " + list + " does not say")
			}
		default:
			failed++
			if expected != "fail" {
				unexpected(spec.State)
			}
		}
		seen[name] = true
	}
	for name := range known {
		if !seen[name] {
			problems = append(problems, fmt.Sprintf("not in the suite, but in %s: %s", list, name))
		}
	}
	for _, reason := range report.SpecialSuiteFailureReasons {
		if !strings.Contains(reason, "Failed") {
			problems = append(problems, "the suite: "+reason)
		}
	}
	slices.Sort(problems)
	for _, problem := range problems {
		fmt.Println(problem)
	}
	fmt.Printf("summary: critest %d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if len(problems) > 0 || passed == 0 {
		return 1
	}
	return 0
}

func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// because is the message of a failure, indented.
func (s spec) because() string {
	if s.Failure == nil || s.Failure.Message == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(strings.TrimSpace(s.Failure.Message), "\n", "\n    ")
}

func readReport(path string) (report, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return report{}, err
	}
	var reports []report
	if err := json.Unmarshal(bytes, &reports); err != nil {
		return report{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(reports) != 1 {
		return report{}, fmt.Errorf("%s: reports of %d suites, not of one", path, len(reports))
	}
	return reports[0], nil
}

// readKnown reads lines such as "fail NAME" and "skip NAME"; empty ones and those with # say nothing.
func readKnown(path string) (known, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all := known{}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, name, ok := strings.Cut(line, " ")
		if !ok || what != "fail" && what != "skip" {
			return nil, fmt.Errorf("%s:%d: expected \"fail NAME\" or \"skip NAME\", not %q", path, number, line)
		}
		all[name] = what
	}
	return all, lines.Err()
}
