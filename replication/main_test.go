package replication

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/internal/testkit"
)

// leftBehind is how long goroutines may outlive what started them: a probe of
// memberlist ends with its time limit, not with its node.
const leftBehind = time.Minute

func TestMain(m *testing.M) {
	if err := testkit.Crowd(4); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		late := time.Now().Add(leftBehind)
		err := goleak.Find() // It waits a moment itself.
		for ; err != nil && time.Now().Before(late); err = goleak.Find() {
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}
