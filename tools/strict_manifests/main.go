// Reads manifests from stdin and decodes each into Kubernetes' own types, strictly: a field that there is not, or that
// has another type, is an error. tools/check_chart.py runs it.
package main

import (
	"fmt"
	"io"
	"os"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	content, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	blank := regexp.MustCompile(`^(\s*(#.*)?\n?)*$`)
	failed := 0
	for number, document := range regexp.MustCompile(`(?m)^---.*$`).Split(string(content), -1) {
		if blank.MatchString(document) {
			continue
		}
		_, kind, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			fmt.Printf("document %d: %v\n", number, err)
			failed++
			continue
		}
		fmt.Printf("%s is well\n", kind)
	}
	if failed > 0 {
		os.Exit(1)
	}
}
