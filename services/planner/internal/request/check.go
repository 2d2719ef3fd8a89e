package request

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seatrial/seatrial/internal/helm/chart"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// check is one message under examination: what was found so far.
type check struct {
	rules   Rules
	message Message
	// seen are the JSON paths of the fields that were given: `"parallel": 0` is a mistake, no `parallel` is the default.
	seen map[string]bool
	// violations that were found, the fields that they name, and how many were found beyond maxViolations.
	violations []*pb.Violation
	at         map[string]bool
	more       int
}

// maxViolations is how many are listed; a body can hold as many mistakes as it has bytes.
const maxViolations = 50

// add notes a violation. Each field has one, the first, and a field inside one that has a violation has none.
func (c *check) add(field, value, format string, args ...any) {
	for up := field; ; {
		if c.at[up] {
			return
		}
		cut := strings.LastIndexAny(up, ".[")
		if cut < 0 {
			break
		}
		up = up[:cut]
	}
	if len(c.violations) == maxViolations {
		c.more++
		return
	}
	c.at[field] = true
	c.violations = append(c.violations, &pb.Violation{Field: field, Value: shorten(value), Message: fmt.Sprintf(format, args...)})
}

// list returns the violations by field.
func (c *check) list() []*pb.Violation {
	slices.SortFunc(c.violations, func(a, b *pb.Violation) int { return strings.Compare(a.GetField(), b.GetField()) })
	if c.more > 0 {
		return append(c.violations, &pb.Violation{Field: "body", Message: fmt.Sprintf("has %d more violations that are not listed", c.more)})
	}
	return c.violations
}

// request fills in req from the message.
func (c *check) request(req *pb.Request) {
	pools, known := c.rules.Clusters[c.message.Release.Cluster]
	if !known {
		c.add("cluster", c.message.Release.Cluster, "is not served here; known: %s", c.rules.clusters())
	}
	switch c.message.Verb {
	case pb.VerbDeploy:
		var body pb.DeployRequest
		read := c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
		if !read {
			return
		}
		req.Chart, req.Values, req.ValuesFrom = body.GetChart(), body.GetValues(), body.GetValuesFrom()
		req.Upgrade, req.Test, req.Force = orNew(body.GetUpgrade()), orNew(body.GetTest()), body.GetForce()
		c.chart(req.GetChart())
		c.values(req.GetValues())
		c.valuesFrom(req.GetValuesFrom())
		c.upgrade(req.GetUpgrade())
		c.test("test.", req.GetTest(), pb.OnFailureRollback, known, pools)
		if c.fingerprinted(req) {
			req.Fingerprint = fingerprint(req)
		}
	case pb.VerbRollback:
		var body pb.RollbackRequest
		read := c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
		if !read {
			return
		}
		req.ToRevision, req.Upgrade, req.Test = body.GetToRevision(), orNew(body.GetUpgrade()), orNew(body.GetTest())
		if req.GetToRevision() < 0 {
			c.add("toRevision", fmt.Sprint(req.GetToRevision()), "must be a revision of the release; 0: the newest proven one before the current")
		}
		c.deployOnly(req.GetUpgrade())
		c.upgrade(req.GetUpgrade())
		c.test("test.", req.GetTest(), pb.OnFailureRollback, known, pools)
	case pb.VerbTest:
		var body pb.TestRequest
		read := c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
		if !read {
			return
		}
		req.Upgrade = &pb.UpgradeOptions{} // a rollback after the tests needs a time-out
		req.Test = &pb.TestOptions{
			Timeout: body.GetTimeout(), Deadline: body.GetDeadline(), Filters: body.GetFilters(), Parallel: body.GetParallel(),
			FailFast: body.GetFailFast(), Attempts: body.GetAttempts(), ErrorAttempts: body.GetErrorAttempts(),
			OnFailure: body.GetOnFailure(), OnError: body.GetOnError(), Required: body.GetRequired(), Pool: body.GetPool(),
		}
		c.upgrade(req.GetUpgrade())
		c.test("", req.GetTest(), pb.OnFailureHold, known, pools)
	case pb.VerbUninstall:
		var body pb.UninstallRequest
		read := c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
		if !read {
			return
		}
		req.Uninstall = &pb.UninstallOptions{
			Timeout: c.duration("timeout", body.GetTimeout(), defaultUpgradeTimeout, c.rules.MaxUpgradeTimeout),
			Wait:    body.Wait, DisableHooks: body.GetDisableHooks(), KeepHistory: body.GetKeepHistory(), Description: body.GetDescription(),
		}
		if req.Uninstall.Wait == nil {
			req.Uninstall.Wait = new(true)
		}
		if body.GetDescription() != "" && !body.GetKeepHistory() {
			c.add("description", body.GetDescription(), "goes with keepHistory only: it is that of the record that is kept")
		}
	case pb.VerbCancel:
		var body pb.CancelRequest
		read := c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
		if !read {
			return
		}
		if req.Cancels = body.GetRequest(); req.GetCancels() != "" && !WellFormed(req.GetCancels()) {
			c.add("request", req.GetCancels(), "must be the id of a request; leave it out to cancel all that are active or wait")
		}
	case pb.VerbForgive:
		var body pb.ForgiveRequest
		read := c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
		if !read {
			return
		}
		if req.Forgives = body.GetKey(); req.GetForgives() == "" && c.seen["key"] {
			c.add("key", "", "must be a key or fingerprint that seatrial.api.get shows; leave it out to forgive all")
		}
	case pb.VerbSuspend:
		var body pb.SuspendRequest
		c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
	case pb.VerbResume:
		var body pb.ResumeRequest
		c.decode(&body)
		c.identity(req, body.GetId(), body.GetRelease())
	default:
		c.identity(req, "", "")
		c.add("verb", c.message.Verb, "unknown; known: %s", strings.Join(Verbs, ", "))
	}
	rest := proto.Size(req) - proto.Size(req.GetValues())
	if rest > maxRest {
		c.add("body", "", "has %d bytes besides `values`; at most %d", rest, maxRest)
	}
}

// identity sets the request's id from body and header, and compares the body's release with the subject's.
func (c *check) identity(req *pb.Request, id, release string) {
	const form = "must be at most 128 letters, digits, - _ and single dots inside, starting with a letter or digit, and not with " + sequencePrefix
	header := c.message.Get(HeaderID)
	for field, value := range map[string]string{"id": id, HeaderID: header} {
		if value != "" && !assignable(value) {
			c.add(field, value, form)
		}
	}
	switch {
	case id != "" && header != "" && id != header:
		c.add("id", id, "differs from the header %s, which says %q", HeaderID, shorten(header))
	case assignable(id):
		req.Id = id
	case id == "" && assignable(header):
		req.Id = header
	}
	if release != "" && release != c.message.Release.String() {
		c.add("release", release, "differs from the subject's, %s; leave it out or correct it", c.message.Release)
	}
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (c *check) chart(source *pb.ChartSource) {
	if source == nil {
		c.add("chart", "", `is required, for example {"oci": "oci://registry.example/charts/web", "version": "1.4.x"}`)
		return
	}
	sources := map[string]string{"oci": source.GetOci(), "repo": source.GetRepo(), "object": source.GetObject(), "path": source.GetPath()}
	maps.DeleteFunc(sources, func(_, value string) bool { return value == "" })
	if len(sources) != 1 {
		c.add("chart", strings.Join(slices.Sorted(maps.Keys(sources)), " and "), "must have exactly one of oci, repo, object and path")
	}
	// What is wrong with an address is said without quoting it: it may hold a password.
	if oci := source.GetOci(); oci != "" {
		c.wrong("chart.oci", "", chart.CheckOCI(oci))
	}
	if repo := source.GetRepo(); repo != "" {
		c.wrong("chart.repo", "", chart.CheckRepo(repo))
		c.wrong("chart.name", source.GetName(), chart.CheckName(source.GetName()))
	} else if source.GetName() != "" {
		c.add("chart.name", source.GetName(), "goes with repo only")
	}
	if source.GetPath() != "" && !c.rules.AllowPaths {
		c.add("chart.path", source.GetPath(), "paths are for development and not allowed here; "+
			"upload the packaged chart: nats object put seatrial-uploads <file>")
	}
	c.version(source)
	if d := source.GetDigest(); d != "" && !digestForm.MatchString(d) {
		c.add("chart.digest", d, "must be sha256: and 64 hexadecimal digits in lower case")
	}
}

func (c *check) version(source *pb.ChartSource) {
	version := source.GetVersion()
	switch {
	case version == "" && c.seen["chart.version"]: // a variable of a pipeline that is not set
		c.add("chart.version", version, "must not be empty; leave it out for the newest")
	case version == "":
	case source.GetOci() == "" && source.GetRepo() == "":
		c.add("chart.version", version, "goes with oci and repo only; an uploaded chart has its own version")
	case chart.Pinned(source.GetOci()):
		c.add("chart.version", version, "the digest in chart.oci names one version; leave out one of the two")
	default:
		c.wrong("chart.version", version, chart.CheckVersion(version))
	}
}

// wrong notes a violation if there is an error.
func (c *check) wrong(field, value string, err error) {
	if err != nil {
		c.add(field, value, "%s", err)
	}
}

// values checks inline values, whose content is shown nowhere.
func (c *check) values(values *structpb.Struct) {
	c.structFields("values", values, 0)
	text, err := wire.MarshalJSON(values)
	if err != nil {
		return // for one of the reasons that were just found
	}
	// Both encodings travel, and either can be the longer one.
	if size := max(len(text), proto.Size(values)); size > maxValues {
		c.add("values", "", "have %d bytes as they are sent on; at most %d (256 KiB)", size, maxValues)
	}
}

const (
	maxDepth = 100
	maxExact = 1 << 53 // from here on not every whole number has a float64 of its own
)

func (c *check) structFields(path string, s *structpb.Struct, depth int) {
	for name, v := range s.GetFields() {
		c.structValue(join(path, name), v, depth+1)
	}
}

// structValue finds what JSON cannot say, or says differently from what was written.
func (c *check) structValue(path string, v *structpb.Value, depth int) {
	if depth > maxDepth {
		c.add("values", "", "are nested more than %d deep", maxDepth)
		return
	}
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StructValue:
		c.structFields(path, kind.StructValue, depth)
	case *structpb.Value_ListValue:
		for i, item := range kind.ListValue.GetValues() {
			c.structValue(fmt.Sprintf("%s[%d]", path, i), item, depth+1)
		}
	case *structpb.Value_NumberValue:
		switch n := kind.NumberValue; {
		case math.IsNaN(n) || math.IsInf(n, 0):
			c.add(path, "", "must be a finite number")
		case math.Abs(n) >= maxExact:
			c.add(path, "", "is a number of 2^53 or more, which loses digits in JSON; write it in quotes")
		}
	case nil:
		c.add(path, "", "has no value")
	}
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	dataKey    = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)
)

func (c *check) valuesFrom(all []*pb.ValuesFrom) {
	for i, from := range all {
		field := func(name string) string { return fmt.Sprintf("valuesFrom[%d].%s", i, name) }
		if from.GetKind() != "ConfigMap" && from.GetKind() != "Secret" {
			c.add(field("kind"), from.GetKind(), "must be ConfigMap or Secret")
		}
		if len(from.GetName()) > 253 || !objectName.MatchString(from.GetName()) {
			c.add(field("name"), from.GetName(), "must be the name of a %s in the release's namespace", orText(from.GetKind(), "ConfigMap or Secret"))
		}
		if from.GetKey() == "" {
			from.Key = "values.yaml"
		}
		if !dataKey.MatchString(from.GetKey()) {
			c.add(field("key"), from.GetKey(), "must be a key of its data: at most 253 letters, digits, - _ and .")
		}
		if path := from.GetTargetPath(); path != "" && slices.Contains(strings.Split(path, "."), "") {
			c.add(field("targetPath"), path, "must be names joined by single dots")
		}
	}
}

var (
	labelName  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
	// helmLabels are those that Helm keeps for itself on its records.
	helmLabels = []string{"name", "owner", "status", "version", "createdAt", "modifiedAt"}
)

// upgrade checks the options of a Helm operation and fills in their defaults.
func (c *check) upgrade(u *pb.UpgradeOptions) {
	u.Timeout = c.duration("upgrade.timeout", u.GetTimeout(), defaultUpgradeTimeout, c.rules.MaxUpgradeTimeout)
	if u.Wait == nil {
		u.Wait = new(true)
	}
	if u.GetWaitForJobs() && !u.GetWait() {
		c.add("upgrade.waitForJobs", "true", "goes with wait only")
	}
	var kept []string
	for name, set := range map[string]bool{
		"reuseValues": u.GetReuseValues(), "resetValues": u.GetResetValues(), "resetThenReuseValues": u.GetResetThenReuseValues(),
	} {
		if set {
			kept = append(kept, name)
		}
	}
	if len(kept) > 1 {
		slices.Sort(kept)
		for _, name := range kept {
			c.add("upgrade."+name, "true", "at most one of %s", strings.Join(kept, ", "))
		}
	}
	u.MaxHistory = c.number("upgrade.maxHistory", u.GetMaxHistory(), defaultHistory, c.rules.MaxHistory)
	if u.GetCrds() == pb.CRDsCreateReplace {
		c.add("upgrade.crds", u.GetCrds(), "not supported yet; use skip or create")
	}
	u.Crds = c.word("upgrade.crds", u.GetCrds(), pb.CRDsCreate, pb.CRDsSkip)
	for name, value := range u.GetLabels() {
		field := join("upgrade.labels", name)
		switch {
		case !labelName.MatchString(name):
			c.add(field, "", "is not the name of a Kubernetes label")
		case slices.Contains(helmLabels, name):
			c.add(field, "", "is a label that Helm keeps for itself")
		case !labelValue.MatchString(value):
			c.add(field, value, "must be at most 63 letters, digits, - _ and ., starting and ending with a letter or digit")
		}
	}
	u.OnFailure = c.word("upgrade.onFailure", u.GetOnFailure(), pb.OnFailureRollback, pb.OnFailureHold)
}

// deployOnly refuses the options that would be ignored in a rollback.
func (c *check) deployOnly(u *pb.UpgradeOptions) {
	for name, given := range map[string]bool{
		"createNamespace": u.GetCreateNamespace(), "takeOwnership": u.GetTakeOwnership(),
		"skipSchemaValidation": u.GetSkipSchemaValidation(), "disableOpenapiValidation": u.GetDisableOpenapiValidation(),
		"reuseValues": u.GetReuseValues(), "resetValues": u.GetResetValues(), "resetThenReuseValues": u.GetResetThenReuseValues(),
		"crds": u.GetCrds() != "", "description": u.GetDescription() != "", "labels": len(u.GetLabels()) > 0,
	} {
		if given {
			c.add("upgrade."+name, "", "means nothing in a rollback; leave it out")
		}
	}
}

// test checks the options of a test run and fills in their defaults. prefix is the path of their fields.
func (c *check) test(prefix string, t *pb.TestOptions, onFailure string, known bool, pools []string) {
	if t.Enabled == nil {
		t.Enabled = new(true)
	}
	if t.GetRequired() && !t.GetEnabled() {
		c.add(prefix+"required", "true", "contradicts enabled: false")
	}
	t.Timeout = c.duration(prefix+"timeout", t.GetTimeout(), defaultTestTimeout, c.rules.MaxTestTimeout)
	t.Deadline = c.duration(prefix+"deadline", t.GetDeadline(), defaultTestDeadline, c.rules.MaxTestDeadline)
	for field, names := range map[string][]string{"filters.name": t.GetFilters().GetName(), "filters.!name": t.GetFilters().GetNotName()} {
		for i, name := range names {
			if name == "" {
				c.add(fmt.Sprintf("%s%s[%d]", prefix, field, i), "", "must be the name of a test")
			}
		}
	}
	t.Parallel = c.number(prefix+"parallel", t.GetParallel(), defaultParallel, c.rules.MaxParallel)
	t.Attempts = c.number(prefix+"attempts", t.GetAttempts(), defaultAttempts, c.rules.MaxAttempts)
	t.ErrorAttempts = c.number(prefix+"errorAttempts", t.GetErrorAttempts(), min(defaultErrorAttempts, c.rules.MaxAttempts), c.rules.MaxAttempts)
	after := []string{pb.OnFailureRollback, pb.OnFailureHold}
	if c.message.Verb == pb.VerbDeploy {
		after = append(after, pb.OnFailureUninstall) // only a deploy can be a first install
	}
	t.OnFailure = c.word(prefix+"onFailure", t.GetOnFailure(), onFailure, after...)
	t.OnError = c.word(prefix+"onError", t.GetOnError(), pb.OnFailureHold, pb.OnFailureRollback)
	if known && t.GetPool() != "" && !slices.Contains(pools, t.GetPool()) {
		c.add(prefix+"pool", t.GetPool(), "unknown tester pool; cluster %s has %s", c.message.Release.Cluster,
			orText(strings.Join(pools, ", "), "only the default pool, which has no name"))
	}
}

// duration returns text in its one form if it is a duration above zero and not above most, and the default for none.
func (c *check) duration(field, text string, fallback, most time.Duration) string {
	if text == "" && !c.seen[field] {
		return min(fallback, most).String()
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		c.add(field, text, `must be a duration such as "90s", "5m" or "1h30m"`)
	case d <= 0:
		c.add(field, text, "must be more than zero: nothing runs without a time-out")
	case d > most:
		c.add(field, text, "at most %s here", most)
	}
	return d.String()
}

// number returns n if it is from 1 to most, and the default for none.
func (c *check) number(field string, n int32, fallback, most int) int32 {
	if n == 0 && !c.seen[field] {
		return int32(min(fallback, most))
	}
	if n < 1 || int64(n) > int64(most) {
		c.add(field, fmt.Sprint(n), "must be a number from 1 to %d", most)
	}
	return n
}

// word returns text if it is fallback or one of others, and fallback for none.
func (c *check) word(field, text, fallback string, others ...string) string {
	if text == "" && !c.seen[field] {
		return fallback
	}
	if text != fallback && !slices.Contains(others, text) {
		allowed := append([]string{fallback}, others...)
		slices.Sort(allowed)
		c.add(field, text, "must be %s", strings.Join(slices.Compact(allowed), " or "))
	}
	return text
}

// fingerprinted says whether all that decides what a deploy does stands in the request itself. Without values and without
// resetValues, Helm takes over the values of the last revision.
func (c *check) fingerprinted(req *pb.Request) bool {
	u := req.GetUpgrade()
	return len(c.violations) == 0 && len(req.GetValuesFrom()) == 0 && !u.GetReuseValues() && !u.GetResetThenReuseValues() &&
		(u.GetResetValues() || len(req.GetValues().GetFields()) > 0)
}

// fingerprint returns sha256:<hex> over inline values and options. The chart is not in it: its digest is known later.
func fingerprint(req *pb.Request) string {
	text, err := wire.MarshalJSON(&pb.Request{Values: req.GetValues(), Upgrade: req.GetUpgrade(), Test: req.GetTest()})
	if err != nil {
		return "" // values were written as JSON before; without a fingerprint the executor alone knows the quarantine
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// orNew returns m, or an empty message for none.
func orNew[T any, M interface {
	*T
	proto.Message
}](m M) M {
	if m == nil {
		return new(T)
	}
	return m
}

func orText(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
