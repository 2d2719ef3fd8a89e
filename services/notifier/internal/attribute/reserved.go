package attribute

import (
	"slices"
	"strings"
)

// Seatrial's own attributes.
const (
	Revision           = "revision" // version of Chart.yaml
	HelmRevision       = "helmrevision"
	Generation         = "generation"
	ChartName          = "chartname"
	ChartAppVersion    = "chartappversion"
	ChartDigest        = "chartdigest"
	Cluster            = "cluster"
	HelmNamespace      = "helmnamespace"
	HelmRelease        = "helmrelease"
	Verdict            = "verdict"
	Result             = "result"
	FailedRevision     = "failedrevision"
	FailedHelmRevision = "failedhelmrevision"
	CorrelationID      = "correlationid"
	CausationID        = "causationid"
	TraceParent        = "traceparent"
)

// reserved are the names that no annotation gets, although it could.
var reserved = [][]string{
	{ // the core of CloudEvents, and what older versions of it called core
		"id", "source", "specversion", "type", "datacontenttype", "dataschema", "subject", "time", "data",
		"database64", "datacontentencoding", "schemaurl", "schemaversion", "contenttype", "cloudeventsversion",
		"eventid", "eventtime", "eventtype", "eventtypeversion", "extensions",
	},
	{ // documented extensions
		"authtype", "authid", "authclaims",
		"bamtxid", "bampid", "bamptxid", "bamptxsid", "bamptxsstatus", "bamptxcompleted",
		"correlationid", "causationid",
		"dataclassification", "dataregulation", "datacategory",
		"dataref",
		"traceparent", "tracestate",
		"dssematerial",
		"expirytime",
		"partitionkey",
		"recordedtime",
		"sampledrate",
		"sequence", "sequencetype",
	},
	{ // Seatrial
		Revision, HelmRevision, Generation, ChartName, ChartAppVersion, ChartDigest, Cluster, HelmNamespace, HelmRelease,
		Verdict, Result, FailedRevision, FailedHelmRevision, CorrelationID, CausationID, TraceParent,
	},
	{ // Dapr puts these into every event
		"pubsubname", "topic", "traceid",
	},
}

// reservedPrefixes belong to documented extensions and to platforms with many attributes, and to Seatrial.
var reservedPrefixes = []string{"deprecat", "opcua", "severity", "knative", "dapr", "seatrial"}

func isReserved(name string) bool {
	return slices.ContainsFunc(reserved, func(names []string) bool { return slices.Contains(names, name) }) ||
		slices.ContainsFunc(reservedPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
