package httpapi

import "github.com/annalsdb/annals/http/media"

// What the resources offer.
var (
	feedOffer = media.NewOffer(media.AtomXML, media.Description, media.AtomXML, media.AtomJSON, media.TextXML, media.AppXML, media.JSON,
		media.EventXML, media.EventJSON, media.EventsXML, media.EventsJSON, media.HTML)
	singleOffer = media.NewOffer(media.AtomXML, media.AtomXML, media.AtomJSON, media.TextXML, media.AppXML, media.JSON,
		media.EventXML, media.EventJSON, media.Raw, media.HTML)
	changeOffer = media.NewOffer(media.Description, media.Description, media.AtomXML, media.AtomJSON, media.TextXML, media.AppXML, media.JSON,
		media.EventXML, media.EventJSON, media.EventsXML, media.EventsJSON, media.Raw)
	nodeOffer   = media.NewOffer(media.JSON, media.JSON, media.TextXML, media.AppXML, media.Text)
	gossipOffer = media.NewOffer(media.JSON, media.JSON, media.AppXML, media.TextXML, media.Text)
	adminOffer  = media.NewOffer(media.Text, media.Text, media.JSON, media.TextXML, media.AppXML)
	// There is no text of statistics.
	statsOffer = media.NewOffer(media.JSON, media.JSON, media.TextXML, media.AppXML)
	jsonOffer  = media.NewOffer(media.JSON, media.JSON)

	queryOffer = media.NewOffer(media.JSON, media.JSON, media.Lines)

	subscriptionsOffer = media.NewOffer(media.JSON, media.JSON, media.TextXML)
	competingOffer     = media.NewOffer(media.CompetingXML, media.CompetingXML, media.CompetingJSON)
)

// What bodies may be.
const (
	appendForms = 1<<media.FormJSON | 1<<media.FormTextXML | 1<<media.FormAppXML | 1<<media.FormRaw | 1<<media.FormEventsJSON | 1<<media.FormEventsXML |
		1<<media.FormEventJSON | 1<<media.FormEventXML | 1<<media.FormAtomJSON | 1<<media.FormAtomXML
	manyForms     = 1<<media.FormJSON | 1<<media.FormManyJSON
	gossipForms   = 1<<media.FormJSON | 1<<media.FormTextXML | 1<<media.FormAppXML
	settingsForms = 1<<media.FormJSON | 1<<media.FormTextXML
	incomingForms = 1<<media.FormJSON | 1<<media.FormTextXML | 1<<media.FormAppXML | 1<<media.FormRaw | 1<<media.FormAtomJSON | 1<<media.FormAtomXML
)
