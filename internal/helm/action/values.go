package action

import (
	"context"
	"maps"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/strvals"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// values returns what Helm is given as the user's values: those of the request, over them those of ConfigMaps and
// Secrets in the release's namespace, in their order, merged as Helm merges files; then the last release's where they
// are to be reused.
func (op *operation) values(ctx context.Context, deploy *seatrialv1.DeployCommand, loaded *helmchart.Chart, current *helmrelease.Release) (map[string]any, error) {
	values := map[string]any{}
	if deploy.GetValues() != nil {
		values = deploy.GetValues().AsMap()
	}
	for _, source := range deploy.GetValuesFrom() {
		data, found, err := op.valuesFrom(ctx, source)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if source.GetTargetPath() != "" {
			// As Helm's --set-file: the path may have escaped dots and indexes, the value is taken as it is.
			text := func([]rune) (any, error) { return string(data), nil }
			if err := strvals.ParseIntoFile(source.GetTargetPath()+"=file", values, text); err != nil {
				return nil, fault.New(seatrialv1.ClassFailed, "", "valuesFrom %s %s: targetPath %q cannot be set",
					source.GetKind(), source.GetName(), source.GetTargetPath())
			}
			continue
		}
		var more map[string]any
		if err := yaml.Unmarshal(data, &more); err != nil {
			return nil, fault.New(seatrialv1.ClassFailed, "", "valuesFrom %s %s, key %s: not YAML of an object",
				source.GetKind(), source.GetName(), key(source))
		}
		values = merge(values, more)
	}
	if current == nil {
		return values, nil
	}
	return reuse(op.upgrade, values, loaded, current)
}

// valuesFrom reads one source. One that is optional need not be there.
func (op *operation) valuesFrom(ctx context.Context, source *seatrialv1.ValuesFrom) (data []byte, found bool, err error) {
	namespace, core := op.release.Namespace, op.client.Clientset.CoreV1()
	switch source.GetKind() {
	case "Secret":
		secret, getErr := core.Secrets(namespace).Get(ctx, source.GetName(), metav1.GetOptions{})
		err = getErr
		if err == nil {
			op.redactor.AddSecret(secret)
			data, found = secret.Data[key(source)]
		}
	case "ConfigMap":
		configMap, getErr := core.ConfigMaps(namespace).Get(ctx, source.GetName(), metav1.GetOptions{})
		err = getErr
		if err == nil {
			text, ok := configMap.Data[key(source)]
			data, found = []byte(text), ok
		}
	default:
		return nil, false, fault.New(seatrialv1.ClassRejected, "", "valuesFrom kind %q: want ConfigMap or Secret", source.GetKind())
	}
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, false, err
	case !found && !source.GetOptional():
		return nil, false, fault.New(seatrialv1.ClassFailed, "create it, or make it optional",
			"valuesFrom: %s %s/%s with key %s does not exist", source.GetKind(), namespace, source.GetName(), key(source))
	}
	return data, found, nil
}

func key(source *seatrialv1.ValuesFrom) string {
	if source.GetKey() == "" {
		return "values.yaml"
	}
	return source.GetKey()
}

// merge puts more over values, as Helm does with a second file of values.
func merge(values, more map[string]any) map[string]any {
	merged := maps.Clone(values)
	for k, v := range more {
		table, ok := v.(map[string]any)
		under, both := merged[k].(map[string]any)
		if ok && both {
			merged[k] = merge(under, table)
		} else {
			merged[k] = v
		}
	}
	return merged
}

// reuse does what Helm's upgrade does about the values of the last release. It is done here because the merged values
// must be known before Helm begins.
func reuse(o *seatrialv1.UpgradeOptions, values map[string]any, loaded *helmchart.Chart, current *helmrelease.Release) (map[string]any, error) {
	switch {
	case o.GetResetValues():
	case o.GetReuseValues():
		old, err := chartutil.CoalesceValues(current.Chart, current.Config)
		if err != nil {
			return nil, fault.New(seatrialv1.ClassFailed, "", "rebuild the values of revision %d: %w", current.Version, err)
		}
		values = chartutil.CoalesceTables(values, current.Config)
		loaded.Values = old
	case o.GetResetThenReuseValues():
		values = chartutil.CoalesceTables(values, current.Config)
	case len(values) == 0 && len(current.Config) > 0:
		values = current.Config
	}
	return values, nil
}
