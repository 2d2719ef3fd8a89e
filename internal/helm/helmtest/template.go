package helmtest

// busybox is the one image that the embedded cluster has besides pause.
const busybox = "busybox:1.36"

// tests is where tests and fixtures are in the chart.
const tests = "templates/tests/"

// endsAtOnce lets a shell that is PID 1, which ignores signals that it has no trap for, end on SIGTERM. What it waits for
// has to run in the background; a test's script that does not is killed after a second.
const endsAtOnce = "trap 'exit 143' TERM; "

const page = `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-page
data:
  index.html: {{ .Values.page | quote }}
`

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
      annotations:
        page: {{ .Values.page | sha256sum }}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: web
          image: busybox:1.36
          imagePullPolicy: IfNotPresent
          command: [sh, -c, "trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait"]
          readinessProbe:
            exec: {command: ["READY"]}
            periodSeconds: 1
          volumeMounts:
            - {name: page, mountPath: /www}
      volumes:
        - name: page
          configMap: {name: {{ .Release.Name }}-page}
`

const secret = `apiVersion: v1
kind: Secret
metadata:
  name: {{ .Release.Name }}-%s
stringData: %s
`

const testPod = `apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-NAME
  annotations: ANNOTATIONS
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: test
      image: IMAGE
      imagePullPolicy: IfNotPresent
      command: [sh, -c, SCRIPT]
`

const testJob = `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-NAME
  annotations: ANNOTATIONS
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
        - name: test
          image: IMAGE
          imagePullPolicy: IfNotPresent
          command: [sh, -c, SCRIPT]
`

const fixture = `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-NAME
  annotations: ANNOTATIONS
data:
  fixture: NAME
`
