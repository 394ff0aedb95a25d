package grpcapi

import "testing"

func TestHarmlessFields(t *testing.T) {
	harmless["M"] = append(harmless["M"], 7)
	defer delete(harmless, "M")
	if err := unknownField("M", 7); err != nil {
		t.Error(err)
	}
	if err := unknownField("M", 8); err == nil || err.Error() != "Unknown field 8 in M." {
		t.Error(err)
	}
}
