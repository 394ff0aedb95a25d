package api

import (
	"errors"
	"path/filepath"
	"strconv"

	"github.com/annalsdb/annals/event"
)

// Damage is the text for clients of an error that reports damaged stored data: of the file it gives
// only the name, which is returned as well. For other errors both are empty.
func Damage(err error) (text, file string) {
	damage, ok := errors.AsType[*event.Corruption](err)
	if !ok {
		return "", ""
	}
	file = filepath.Base(damage.File)
	text = "Stored data is damaged: " + file
	if damage.Offset >= 0 {
		text += " at offset " + strconv.FormatInt(damage.Offset, 10)
	}
	if _, ok := errors.AsType[*event.CannotDecide](err); ok {
		text += ". The write cannot be decided without it"
	}
	return text, file
}
